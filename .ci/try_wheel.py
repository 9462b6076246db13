"""Test the built wheel and sdist in a new environment and an empty folder, without the checkout.

Usage: ``try_wheel.py FOLDER``. Wheel and sdist are in ``FOLDER/dist``. The program ends at the
first failure.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

RELEASES = json.loads(Path(__file__).with_name("releases.json").read_text(encoding="utf-8"))
TORCH = os.environ.get("TORCH_VERSION", RELEASES["torch"]["gate"][0])
#: Clauses to check; a few are enough to test the installation.
CLAUSES = ("comm.scatter", "divergences.RE-1", "divergences.FN-6")
OPTIONS = ("--accelerator", "sim", *(f"--clause={name}" for name in CLAUSES))

COMMAND = "parallel-conformance"
# The empty folder is in the checkout, so pytest would read the settings of the checkout.
SIMULATOR = (
    *("test_race.py", "-c", "empty.ini"),
    *("-p", "spec_tests.simulator.pytest_plugin", "--sim-devices", "4"),
)
RACE = """
import torch

def test_reader_does_not_wait_for_a_copy(sim_devices):
    with torch.Stream(sim_devices[3]):
        x = torch.ones(4).to(sim_devices[3], non_blocking=True)
    assert (x + 1).tolist() == [2] * 4
"""


def main(folder: Path) -> None:
    """Install the wheel and test every command; install the sdist and test one command."""
    empty = folder / "empty"
    for stale in (empty, folder / "venv"):
        shutil.rmtree(stale, ignore_errors=True)
    empty.mkdir(parents=True)
    venv.create(folder / "venv", with_pip=True)
    tools = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")

    def call(tool: str, *arguments: str, statuses: Sequence[int] = (0,)) -> None:
        print("$", tool, *arguments, flush=True)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [tools / tool, *arguments]
        actual = subprocess.run(command, cwd=empty, env=environment, check=False).returncode
        if actual not in statuses:
            sys.exit(f"exit status {actual}, expected {statuses[0]}")

    call("pip", "install", "-q", str(wheel), f"torch=={TORCH}", "pytest", "ninja", "setuptools")
    _test_simulator(call, empty)
    call("pip", "install", "-q", f"{wheel}[suite,report,bench]", f"torch=={TORCH}")
    call("pytest", *SIMULATOR, "-p", "spec_tests", "-n", "2", "--no-races")
    _test_commands(call, empty)
    call("pip", "install", "-q", "--force-reinstall", "--no-deps", str(sdist))
    call(COMMAND, "run", "torch.nn.parallel", *OPTIONS)


def _test_simulator(call: Callable[..., None], empty: Path) -> None:
    """Test the plugin of the simulator without the packages that the suite needs."""
    (empty / "test_race.py").write_text(RACE, encoding="utf-8")
    (empty / "empty.ini").write_text("[pytest]\n", encoding="utf-8")
    call("pytest", *SIMULATOR)
    call("pytest", *SIMULATOR, "--races", statuses=[1])


def _test_commands(call: Callable[..., None], empty: Path) -> None:
    call(COMMAND, "doctor")
    call(COMMAND, "clauses", "comm.scatter")
    call(COMMAND, "run", "torch.nn.parallel", *OPTIONS, "--verdicts", "verdicts.jsonl")
    call(COMMAND, "report", "verdicts.jsonl")
    page = (empty / "report.html").read_text(encoding="utf-8")
    # The second text is the name of the column of a published run.
    for text in ("comm.scatter.slices", 'value="torch.nn.parallel.torch-'):
        if text not in page:
            sys.exit(f"report.html does not contain {text}")
    options = ("--target", "torch.nn.parallel", "--accelerator", "sim", "-q")
    suite = ("-p", "spec_tests", "--pyargs", "spec_tests.comm.test_scatter")
    call("pytest", *suite, *options)
    call("pytest", *suite, *options, "-n", "2")
    benchmark = ("-p", "spec_tests", "--pyargs", "spec_bench.bench_parallel_apply")
    call("pytest", *benchmark, *options, "--benchmark-max-time=0.1", "--benchmark-json=run.json")
    # On a busy machine the rows are unsure.
    compare = ("python", "-m", "spec_bench.compare", "run.json", "--before", "run.json")
    call(*compare, statuses=[0, 3])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
