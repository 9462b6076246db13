"""The commands of bench/README.md run in a checkout. ``tox -e package`` runs those of a wheel."""

import os
import re
import shlex
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
#: One short benchmark in place of all.
BENCHMARK = str(ROOT / "bench" / "bench_parallel_apply.py")
SHORT = ["--accelerator=sim", "--benchmark-max-time=0.01"]


def commands_of(section):
    """Return the commands in a section of the page, as lists of words."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


@pytest.fixture
def run_command(run_module, write_package, monkeypatch):
    """Return a function that runs a command in a folder with a package `mine`."""
    text = "from impl.parallel_apply import parallel_apply as parallel_apply\n"
    write_package("mine", parallel_apply=text)
    # In a worker of xdist, pytest-benchmark times nothing.
    for name in [each for each in os.environ if "XDIST" in each]:
        monkeypatch.delenv(name)

    def run(program, *arguments, statuses=(0,)):
        command = arguments[1:] if program == "python" else [program.replace("-", "_"), *arguments]
        if command[0] == "pytest":
            command = [BENCHMARK if each == "bench" else each for each in command] + SHORT
        done = run_module(*command)
        assert done.returncode in statuses, done.stdout + done.stderr
        return done.stdout

    return run


def test_two_runs_are_compared_by_ratio_and_by_time(run_command):
    *runs, compare, times = commands_of("Compare two runs")
    for each in runs:
        run_command(*each)
    # The ratios of such short runs may differ by more than 15 %. On a busy machine none is judged.
    assert " of 2 rows" in run_command(*compare, statuses=(0, 1, 3))
    assert "bench_parallel_apply[modules=2] (reference)" in run_command(*times)


def test_package_is_compared_with_the_reference(run_command):
    run, compare, *_ = commands_of("Benchmark your own package")
    run_command(*run)
    # A package has no floors, so no row is judged.
    assert "reference / mine" in run_command(*compare, statuses=(3,))
