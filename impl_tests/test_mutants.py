"""The mutants apply to impl, and the suite catches a sample of them."""

import subprocess
import sys

import pytest

from impl_tests.mutants import IMPL, load

MUTANTS = load()
#: The mutants that each test run tries; ``python -m impl_tests.mutants`` tries all mutants.
SAMPLE = (
    "gradients-are-summed-not-averaged",
    "no-sync-still-sums-gradients",
)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_passage_that_a_mutant_replaces_occurs_once(mutant):
    mutant.apply((IMPL / mutant.file).read_text())


@pytest.mark.machinery
def test_suite_catches_a_sample_of_mutants():
    # Start a new process: a process that has used simulated devices must not fork.
    command = [sys.executable, "-m", "impl_tests.mutants", *SAMPLE]
    run = subprocess.run(command, cwd=IMPL.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(SAMPLE)} caught" in run.stdout
