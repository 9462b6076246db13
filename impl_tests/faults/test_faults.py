"""The fault harness: faults of impl and of perturbations, and processes that hang or die."""

import subprocess
import sys
from pathlib import Path

import pytest

from impl_tests.faults.__main__ import describe_bad
from impl_tests.faults.trial import TrialResult
from impl_tests.faults.verdicts import Finding
from spec_tests.harness.environment.scripts import run_program

ROOT = Path(__file__).resolve().parents[2]
#: A perturbation of impl -> the kind of faults to inject, and the verdict of the first bad trial.
PERTURBATIONS = {
    "parallel_apply.parallel_apply accepted always": ("interrupt", "lost"),
    "data_parallel.data_parallel gradient-doubled always": ("interrupt", "wrong result"),
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


@pytest.mark.parametrize(("kind", "count"), [("interrupt", 12), ("memory", 12), ("thread", 12)])
def test_some_faults_of_impl_have_no_bad_verdict(kind, count):
    run = run_faults(kind, count)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 bad" in run.stdout


@pytest.mark.machinery
def test_some_blocked_replicas_of_impl_have_no_bad_verdict():
    run = run_faults("blocked", 10)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.machinery
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_a_perturbation_of_impl_is_found_and_its_seed_repeats_it(perturbation):
    kind, verdict = PERTURBATIONS[perturbation]
    run = run_faults(kind, 300, "--perturbation", perturbation, "-x", "--processes", "1")
    assert run.returncode == 1, run.stderr
    first = next(line for line in run.stdout.splitlines() if line.startswith(verdict))
    seed = first.split()[first.split().index("--seed") + 1]
    again = run_faults(kind, 1, "--perturbation", perturbation, "--seed", seed)
    assert first in again.stdout


def test_the_text_of_a_bad_verdict_names_the_seed():
    findings = [Finding("error", "interrupt"), Finding("lost", "interrupt", "detail")]
    (text,) = describe_bad(TrialResult(7, "interrupt", findings, "log"))
    assert text.startswith("lost (--kinds interrupt --seed 7 --count 1)")


BAD_CALL = """
from impl_tests.faults import trial
from impl_tests.faults.calls import prepare
import os, threading

def {name}(call, rng):
    {body}

trial.KINDS["{name}"] = {name}
for result in trial.run_trials(prepare("impl"), ["{name}"], [1], processes=1, limit=2):
    print(result.findings[0].verdict, "in {name}" in result.findings[0].detail)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_program(BAD_CALL.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
