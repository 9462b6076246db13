"""Every clause has a wrong target that breaks it; a few are tried on every run."""

import pytest

from spec_tests import clauses
from spec_tests.meta_tests.mutants import IMPL, load, trial

MUTANTS = load()
#: Tried on every run; ``python -m spec_tests.meta_tests.mutants`` tries them all.
SAMPLE: tuple[str, ...] = ()


def test_there_are_a_hundred_at_least():
    assert len(MUTANTS) >= 100


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_passage_occurs_once(mutant):
    mutant.apply((IMPL / mutant.file).read_text())


def test_every_clause_has_a_mutant():
    broken = {name for mutant in MUTANTS.values() for name in mutant.breaks}
    assert broken == set(clauses.load())


def test_the_sample_is_caught():
    chosen = [MUTANTS[name] for name in SAMPLE]
    tests = trial.tests_by_clause()
    survived = {t.mutant.name: t.survived for t in trial.run(chosen, tests, processes=2)}
    assert survived == dict.fromkeys(SAMPLE, ())
