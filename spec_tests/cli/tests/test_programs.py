"""The programs that a run writes for its failures."""

import re

import pytest

from spec_tests.machine.target import PARTS
from spec_tests.machine.tests.fixtures import start_python

#: A package whose functions and classes all raise.
BROKEN = """
class Broken:
    def __init__(self, *args, **kwargs): raise RuntimeError("broken")
    apply = classmethod(__init__)
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Broken
"""
#: Tests with drawn arguments.
DRAWN = "(hypothesis or test_life) and not compiled"


@pytest.fixture
def folder(tmp_path, write_package):
    """Return a folder with the package ``broken``."""
    parts = dict.fromkeys(PARTS, "from broken import Broken, __getattr__")
    write_package("broken", __init__=BROKEN, **parts)
    return tmp_path


@pytest.mark.slow
def test_programs_of_all_drawn_calls_fail_as_the_tests_do(run_module, folder):
    command = ["spec_tests.cli", "run", "broken", "--accelerator=sim", "--", "-k", DRAWN]
    done = run_module(*command, "--hypothesis-profile=perturbations")
    assert done.returncode == 1, done.stdout + done.stderr
    programs = [path.name for path in (folder / "repro").glob("*.py")]
    assert len(programs) > 200
    imported = [
        each for each in programs if "is imported" in (folder / "repro" / each).read_text()
    ]
    # Tests that draw inside their bodies, and those with a lambda expression as parameter.
    assert len(imported) <= 8
    # One process runs all programs.
    options = ["-p", "spec_tests", "-o", "python_files=*.py"]
    options += ["--target=broken", "--accelerator=sim", "--import-mode=importlib", "--tb=line"]
    repeated = run_module("pytest", "repro", *options, "-q", "-p", "no:cacheprovider")
    last_line = repeated.stdout.splitlines()[-1]
    counts = re.fullmatch(r"=* ?(\d+) failed(?:, \d+ warnings?)? in .*", last_line)
    assert counts, repeated.stdout[-3000:]
    assert int(counts[1]) >= len(programs)


@pytest.fixture
def run_clause(run_module, folder):
    """Return a function that runs a clause on ``broken`` and returns the failure's program."""

    def run(clause):
        options = "--accelerator=sim", f"--clause={clause}"
        assert run_module("spec_tests.cli", "run", "broken", *options).returncode == 1
        (program,) = (folder / "repro").glob("*.py")
        return program

    return run


def test_a_program_shows_expected_and_actual_result_and_passes_once_repaired(
    run_module, run_clause, folder
):
    wrong = "from torch.nn.parallel.comm import *\ndef scatter(*args, **kwargs):\n    return []\n"
    (folder / "broken" / "comm.py").write_text(wrong)
    program = run_clause("comm.scatter.even-chunks")
    assert program.name == "comm_scatter_even-chunks.py"
    text = program.read_text()
    assert "\n    count = 1\n" in text
    assert "target.comm.scatter(tensor, topology.take(count))" in text
    done = run_module(f"repro.{program.stem}")
    assert done.returncode == 1
    assert "output['1 rows'] is [], expected [1]" in done.stdout
    assert "warning" not in done.stdout
    (folder / "broken" / "comm.py").write_text("from torch.nn.parallel.comm import *\n")
    assert run_module(f"repro.{program.stem}").returncode == 0


def test_the_program_of_a_test_that_reads_the_name_of_a_class_runs_it(run_module, run_clause):
    # Its module has the name __name__, too.
    done = run_module(f"repro.{run_clause('data_parallel.state.no-forwarding').stem}")
    assert done.returncode == 1


#: A package whose scatter reads a chunk on a stream that waits for nothing.
RACING = """
import torch
from torch.nn.parallel.comm import *
from torch.nn.parallel import comm
def scatter(*args, **kwargs):
    chunks = comm.scatter(*args, **kwargs)
    with torch.Stream(chunks[0].device):
        chunks[0].clone()
    return chunks
"""


@pytest.mark.slow
def test_the_program_of_a_drawn_call_that_races_draws_again(run_clause, folder):
    (folder / "broken" / "comm.py").write_text(RACING)
    program = run_clause("comm.scatter.slices")
    assert "is imported, because the failure shows no value of call" in program.read_text()
    process = start_python(folder, program)
    printed, _ = process.communicate()
    assert process.returncode == 1
    assert "race on" in printed
