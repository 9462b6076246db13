"""Every clause has a wrong target that breaks it; a few are tried on every run."""

import pytest

from impl_tests.mutants import IMPL, load, trial
from spec_tests.harness import clauses

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
    chosen = [MUTANTS[name] for name in SAMPLE]
    trials = trial.run(chosen, trial.tests_by_clause(), processes=2)
    survived = {each.mutant.name: each.survived for each in trials}
    assert survived == dict.fromkeys(SAMPLE, ())
