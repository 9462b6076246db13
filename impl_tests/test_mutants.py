"""Every clause has a wrong target that breaks it; a few are tried on every run."""

import subprocess
import sys

import pytest

from impl_tests.mutants import IMPL, load
from spec_tests.harness.conformance import clauses

MUTANTS = load()
#: Tried on every run; ``python -m impl_tests.mutants`` tries them all.
SAMPLE = (
    "scatter-reverses-chunks",
    "empty-tensors-lose-their-shape",
    "function-broadcast-thaws-the-frozen",
    "named-tuples-are-made-from-one-iterable",
    "results-stay-with-the-first-replica",
    "children-stay-the-modules",
    "errors-lose-their-context",
    "the-default-device-stays-behind",
    "devices-are-sorted",
    "copied-arguments-get-no-gradient",
)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_passage_occurs_once(mutant):
    mutant.apply((IMPL / mutant.file).read_text())


def test_every_clause_has_a_mutant():
    broken = {name for mutant in MUTANTS.values() for name in mutant.breaks}
    # The clauses of the C++ front end are no target's; test_cpp_facts has a wrong one for each.
    assert broken == {name for name in clauses.load() if not name.startswith("cpp.")}


def test_the_sample_is_caught():
    # In a process of its own: one that has used the simulated devices must not fork trials.
    command = [sys.executable, "-m", "impl_tests.mutants", *SAMPLE]
    done = subprocess.run(command, cwd=IMPL.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SAMPLE)} caught" in done.stdout
