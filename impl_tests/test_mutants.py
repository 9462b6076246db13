"""Every clause has a mutant that breaks it; a few mutants are tried on every run."""

import subprocess
import sys

import pytest

from impl_tests.mutants import IMPL, load
from spec_tests.harness.conformance import clauses

MUTANTS = load()
#: The mutants to try here; ``python -m impl_tests.mutants`` tries all.
SAMPLE = (
    "scatter-reverses-chunks",
    "empty-tensors-lose-their-shape",
    "function-broadcast-copies-of-frozen-tensors-require-grad",
    "named-tuples-are-made-from-one-iterable",
    "gather-ignores-the-target-device",
    "replicas-share-the-modules-children",
    "errors-lose-their-context",
    "the-default-device-is-not-copied-to-modules",
    "devices-are-sorted",
    "copied-arguments-get-no-gradient",
)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_replaced_passage_occurs_once(mutant):
    mutant.apply((IMPL / mutant.file).read_text())


def test_every_clause_has_a_mutant():
    broken = {name for mutant in MUTANTS.values() for name in mutant.breaks}
    # Clauses of the C++ front end do not concern targets; test_cpp_facts has wrong facts instead.
    assert broken == {name for name in clauses.load() if not name.startswith("cpp.")}


def test_the_sample_is_caught():
    # A new process: one that has used the simulated devices must not fork trials.
    command = [sys.executable, "-m", "impl_tests.mutants", *SAMPLE]
    done = subprocess.run(command, cwd=IMPL.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SAMPLE)} caught" in done.stdout
