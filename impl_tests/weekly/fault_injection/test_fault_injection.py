"""The fault harness finds faults of a function, and processes that hang or die."""

import pytest

from spec_tests.machine.processes import run_program

#: Runs the harness on a function that returns the results of impl, and leaves the garbage
#: collector off after an error.
PROGRAM = """
import dataclasses, gc, sys
import impl
from impl_tests.helpers.cases import CASES
from impl_tests.weekly.fault_injection.__main__ import main

def leave_gc_off(**arguments):
    gc.disable()
    result = impl.data_parallel(**arguments)
    gc.enable()
    return result

if {is_wrong}:
    wrong = dataclasses.replace(CASES["data_parallel"], find=lambda: leave_gc_off)
    CASES["data_parallel"] = wrong
sys.exit(main())
"""


def run_faults(*options, is_wrong=False):
    return run_program(PROGRAM.format(is_wrong=is_wrong), *options)


def test_some_faults_of_impl_have_no_bad_verdict():
    run = run_faults("--seed", "0", "--count", "8")
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 bad" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["interrupt", "memory", "thread", "blocked"])
def test_each_kind_finds_a_wrong_function_and_its_trial_repeats(kind):
    selected = "--only", f"{kind} in data_parallel", "-x"
    first = run_faults("--seed", "0", *selected, "--count", "100", is_wrong=True)
    assert "\nstate left (--seed " in first.stdout, first.stdout + first.stderr
    seed = first.stdout.partition("(--seed ")[2].partition(" ")[0]
    assert run_faults("--seed", seed, "--count", "1", is_wrong=True).returncode == 1


#: A program in which a call never returns, or ends its process. It prints the verdict.
WRONG_CALL = """
from impl_tests.helpers import forks
from impl_tests.weekly.fault_injection import __main__ as faults, call_trials, findings
import os, threading

def {name}(rng, seconds):
    {body}

call_trials.KINDS["thread"] = {name}
faults.prepare()
trial = call_trials.CallTrial(1, "thread", "comm.reduce_add", has_settings=False)
for ended in forks.run(faults.create_jobs([trial]), processes=1, limit=5):
    print(findings.find(ended)[0].verdict, "in {name}" in ended.log)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_program(WRONG_CALL.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
