"""Which clauses' tests a mutant has to fail, and which it got past."""

from collections.abc import Iterable, Mapping, Sequence

from spec_tests.meta_tests.mutants import Mutant
from spec_tests.meta_tests.mutants.trial import Job, Trial


def jobs_of(mutants: Iterable[Mutant], tests: Mapping[str, Sequence[str]]) -> list[Job]:
    """One job a mutant: the tests of the clauses that it breaks."""
    return [Job(mutant, _tests_of(mutant, tests)) for mutant in mutants]


def _tests_of(mutant: Mutant, tests: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    nodes = {node for name in mutant.breaks for node in tests.get(name, ())}
    return tuple(sorted(nodes))


def survived_clauses(trial: Trial) -> tuple[str, ...]:
    """The clauses that the mutant claims to break and whose tests passed all the same."""
    mutant = trial.job.target
    assert isinstance(mutant, Mutant)
    return tuple(name for name in mutant.breaks if not trial.is_caught(name))
