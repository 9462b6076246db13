"""Try the built wheel and sdist as users do: a new environment, an empty folder, no checkout.

``try_wheel.py FOLDER``: ``FOLDER/dist`` holds both. The first thing that fails ends it.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

TORCH = os.environ.get("TORCH_VERSION", "2.13.0")
#: Few of the clauses: what is tried is the way there, not the target.
#: FN-6 is known by a text that an installed suite, whose assertions pytest rewrites, once changed.
CLAUSES = ("comm.scatter", "divergences.RE-1", "divergences.FN-6")
FEW = ("--accelerator", "sim", *(f"--clause={name}" for name in CLAUSES))


#: A package with two bugs, laid out in its own way; what is judged of it, and what fails.
OWN = Path(__file__).parents[1] / "spec_tests" / "meta_tests" / "renamed_target"
JUDGED = ("comm.gather", "comm.reduce-add")
BUGS = {"comm.gather.minus-one-is-the-cpu", "comm.reduce-add.refuses-other-shapes"}
FAILED = 1
COMMAND = "parallel-conformance"


def main(folder: Path) -> None:
    """Install the wheel and call every command; then the sdist, and judge a little."""
    empty = folder / "empty"
    for stale in (empty, folder / "venv"):
        shutil.rmtree(stale, ignore_errors=True)
    empty.mkdir(parents=True)
    venv.create(folder / "venv", with_pip=True)
    tools = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")

    def call(tool: str, *arguments: str, status: int = 0) -> None:
        print("$", tool, *arguments, flush=True)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [tools / tool, *arguments]
        found = subprocess.run(command, cwd=empty, env=environment, check=False).returncode
        if found != status:
            sys.exit(f"exit status {found}, expected {status}")

    call("pip", "install", "-q", f"{wheel}[suite,report]", f"torch=={TORCH}")
    _try_commands(call, empty)
    _try_own_package(call, empty)
    call("pip", "install", "-q", "--force-reinstall", "--no-deps", str(sdist))
    call(COMMAND, "run", "torch.nn.parallel", *FEW)


def _try_commands(call: Callable[..., None], empty: Path) -> None:
    call(COMMAND, "doctor")
    call(COMMAND, "clauses", "comm.scatter")
    call(COMMAND, "run", "torch.nn.parallel", *FEW, "--verdicts", "verdicts.jsonl")
    call(COMMAND, "report", "verdicts.jsonl")
    if "comm.scatter.slices" not in (empty / "site" / "matrix.html").read_text(encoding="utf-8"):
        sys.exit("the page of the matrix does not have the clauses")
    own = ("--target", "torch.nn.parallel", "--accelerator", "sim", "-q")
    call("pytest", "--pyargs", "spec_tests.comm.test_scatter", *own)
    call("pytest", "--pyargs", "spec_tests.comm.test_scatter", *own, "-n", "2")


def _try_own_package(call: Callable[..., None], empty: Path) -> None:
    """Two bugs behind a map are the two failures."""
    shutil.copytree(OWN, empty, dirs_exist_ok=True)
    options = ["--accelerator=sim", "--target-map=map.toml", "--verdicts=own.jsonl"]
    options += [f"--clause={name}" for name in JUDGED]
    call(COMMAND, "run", "own", *options, status=FAILED)
    lines = [json.loads(line) for line in (empty / "own.jsonl").read_text().splitlines()]
    found = {line["clause"] for line in lines if line.get("verdict") == "fail"}
    if found != BUGS:
        sys.exit(f"failed: {sorted(found)}, expected {sorted(BUGS)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
