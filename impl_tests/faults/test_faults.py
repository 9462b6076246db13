"""The fault harness: faults of impl and of perturbations, and processes that hang or die."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from spec_tests.harness.environment.scripts import run_program

ROOT = Path(__file__).resolve().parents[2]
#: A perturbation of impl -> the kind of faults to inject, and the verdict of the first bad trial.
PERTURBATIONS = {
    "parallel_apply.parallel_apply accepted always": ("interrupt", "lost"),
    "data_parallel.DataParallel.forward leaves:device always": ("interrupt", "state left"),
    "data_parallel.data_parallel other-class:OutOfMemoryError always": ("memory", "other error"),
    "parallel_apply.parallel_apply other-class:RuntimeError always": ("thread", "other error"),
    "parallel_apply.parallel_apply other-class:KeyboardInterrupt always": (
        "blocked",
        "other error",
    ),
}


def run_faults(kind, count, *options):
    command = [sys.executable, "-m", "impl_tests.faults", "--kinds", kind, "--count", str(count)]
    command += ["--seed", "0", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_some_faults_of_impl_have_no_bad_verdict():
    run = run_faults("interrupt,memory,thread,blocked", 8)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 bad" in run.stdout


def find_first(perturbation, kind, *options):
    """Return the lines that describe the first bad verdict on a perturbation."""
    run = run_faults(kind, 300, "--perturbation", perturbation, "-x", *options)
    assert run.returncode == 1, run.stderr
    return run.stdout.splitlines()[1:3]


@pytest.mark.machinery
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_a_perturbation_of_impl_is_found(perturbation):
    kind, verdict = PERTURBATIONS[perturbation]
    assert find_first(perturbation, kind)[0].startswith(verdict)


@pytest.mark.machinery
def test_the_options_of_a_bad_verdict_repeat_its_trial():
    perturbation = "data_parallel.data_parallel other-class:OutOfMemoryError always"
    first = find_first(perturbation, "memory")
    options = shlex.split(first[0].partition("(")[2].rstrip(")"))
    assert find_first(perturbation, "memory", *options) == first


#: A function that a trial makes wrong, and the verdict on its faults.
WRONG_CALL = """
from impl_tests.faults.calls import Call, prepare
from impl_tests.faults.kinds import KINDS
from impl_tests.faults.trial import Trial, run_trials
import os, threading, time

def {name}(call, rng):
    {body}

KINDS["thread"] = {name}
trial = Trial("thread", "comm.reduce_add", 1)
prepare()
for _, findings, _ in run_trials([trial], processes=1, limit=2):
    print(findings[0].verdict, "in {name}" in findings[0].detail)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_program(WRONG_CALL.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
