"""The program that injects faults finds a wrong function, and processes that hang or die."""

import pytest

from spec_tests.machine.processes import run_program

#: Runs trials of the function `comm.gather` of impl, which is wrong with an argument: it leaves
#: the garbage collector off after an error, hangs or dies.
PROGRAM = """
import dataclasses, gc, os, sys, threading
from impl_tests.helpers.cases import CASES
from impl_tests.long_checks import faults

def call(**arguments):
    {statement}
    result = find()(**arguments)
    gc.enable()
    return result

find = CASES["comm.gather"].find
CASES["comm.gather"] = dataclasses.replace(CASES["comm.gather"], find=lambda: call)
faults.prepare()
trials = [faults.Trial(seed, "{kind}", "comm.gather") for seed in (2, 4)]
sys.exit(faults.run(iter(trials), limit=3))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "statement", "verdict"),
    [
        ("interrupt", "", ""),
        ("interrupt", "gc.disable()", "state left (--seed "),
        ("memory", "gc.disable()", "state left (--seed "),
        ("memory", "os.getppid() == PARENT and os.abort()", "exit status -6 (--seed "),
        ("memory", "os.getppid() == PARENT and threading.Event().wait()", "hang (--seed "),
    ],
)
def test_trials_of_a_function_have_the_verdict(kind, statement, verdict):
    # The expected result is computed by a child of the trial.
    text = PROGRAM.format(kind=kind, statement=statement)
    ended = run_program("import os; PARENT = os.getpid()\n" + text)
    assert verdict in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == bool(verdict)
