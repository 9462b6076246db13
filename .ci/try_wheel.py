"""Try the built wheel as its users do: a new environment, an empty folder, no checkout.

``try_wheel.py FOLDER``: ``FOLDER/dist`` holds the wheel. The first thing that fails ends it.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TORCH = os.environ.get("TORCH_VERSION", "2.13.0")
#: Few of the clauses: what is tried is the way there, not the target.
FEW = ("--accelerator", "sim", "--clause", "comm.scatter", "--clause", "divergences.RE-1")


def main(folder: Path) -> None:
    """Install, then call every command."""
    empty = folder / "empty"
    for stale in (empty, folder / "venv"):
        shutil.rmtree(stale, ignore_errors=True)
    empty.mkdir(parents=True)
    venv.create(folder / "venv", with_pip=True)
    tools = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = (folder / "dist").glob("*.whl")

    def call(tool: str, *arguments: str) -> None:
        print("$", tool, *arguments, flush=True)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([tools / tool, *arguments], cwd=empty, env=environment, check=True)

    call("pip", "install", "-q", f"{wheel}[suite,report]", f"torch=={TORCH}")
    command = "parallel-conformance"
    call(command, "doctor")
    call(command, "clauses", "comm.scatter")
    call(command, "run", "torch.nn.parallel", *FEW, "--verdicts", "verdicts.jsonl")
    call(command, "report", "verdicts.jsonl")
    if "comm.scatter.slices" not in (empty / "site" / "matrix.html").read_text(encoding="utf-8"):
        sys.exit("the page of the matrix does not have the clauses")
    own = ("--target", "torch.nn.parallel", "--accelerator", "sim", "-q")
    call("pytest", "--pyargs", "spec_tests.comm.test_scatter", *own)
    call("pytest", "--pyargs", "spec_tests.comm.test_scatter", *own, "-n", "2")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
