"""The fault harness finds faults of impl, and processes that hang or die."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from impl_tests.weekly.mutation.changes import find_changes
from spec_tests.harness.environment.scripts import run_program

ROOT = Path(__file__).resolve().parents[3]
#: Kind of faults -> the operator, the file and the function of a change of impl.
CHANGES = {
    "interrupt": ("drop finally", "_settings.py", "call_with_setting"),
    "memory": ("drop finally", "_settings.py", "call_with_setting"),
    "thread": ("drop finally", "_gc.py", "pause_gc"),
    "blocked": ("drop finally", "_gc.py", "pause_gc"),
}


def run_faults(folder, *options):
    """Run the harness with the impl in ``folder``."""
    command = [sys.executable, "-m", "impl_tests.weekly.faults", *options]
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_some_faults_of_impl_have_no_bad_verdict():
    run = run_faults(ROOT, "--seed", "0", "--count", "8")
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 bad" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGES)
def test_each_kind_finds_a_change_of_impl_and_its_trial_repeats(kind, tmp_path):
    changes = find_changes((CHANGES[kind][1],)).values()
    change = next(c for c in changes if (c.operator, c.file, c.place) == CHANGES[kind])
    change.write(tmp_path)
    first = run_faults(tmp_path, "--seed", "0", "--only", kind, "-x", "--count", "100")
    assert "\nstate left (--seed " in first.stdout, first.stderr
    seed = first.stdout.partition("(--seed ")[2].partition(" ")[0]
    assert run_faults(tmp_path, "--seed", seed, "--count", "1").returncode == 1


#: A program in which a call never returns, or ends its process. It prints the verdict.
WRONG_CALL = """
from impl_tests.helpers import forks
from impl_tests.weekly.faults import __main__ as faults, findings
import os, threading

def {name}(rng, seconds):
    {body}

faults.KINDS["thread"] = {name}
faults.prepare()
trial = faults.Trial(1, "thread", "comm.reduce_add", has_settings=False)
job = forks.Job(trial, lambda folder: faults.run_trial(trial, folder))
for ended in forks.run([job], processes=1, limit=5):
    print(findings.find(ended)[0].verdict, "in {name}" in ended.log)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_program(WRONG_CALL.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
