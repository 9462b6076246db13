"""The verdict of each clause for each implementation, and comparisons of verdicts."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from spec_tests.harness.conformance.clauses import Clause, suite_version
from spec_tests.site.runs import Results, Run

__all__ = ["NOT_MET", "Matrix", "VerdictChange", "differences", "history"]

#: The verdicts of targets that do not satisfy a clause.
NOT_MET = ("fail", "not-offered", "known")
#: The verdicts of targets that have the names that a clause needs, but violate the clause.
VIOLATED = ("fail", "known")


@dataclass(frozen=True)
class VerdictChange:
    """A clause with different verdicts in two runs. An empty text is a missing verdict."""

    clause: Clause
    before: str
    after: str


@dataclass(frozen=True)
class Matrix:
    """A table of verdicts with a row for each clause and a column for each run.

    Args:
        clauses: The clauses by id. Clauses that have been removed come last.
        columns: Runs of one version of the suite.
        older: The newest runs of other versions of the suite.
    """

    clauses: Mapping[str, Clause]
    columns: Sequence[Run]
    older: Sequence[Run] = ()

    @classmethod
    def of(cls, results: Results, known_clauses: Mapping[str, Clause]) -> "Matrix":
        """Return the matrix of the newest run of each kind (`Run.kind`).

        The columns are runs of the current suite if there are any, else of the suite of the newest
        run.
        """
        judged = dict.fromkeys(name for run in results.runs for name in run.verdicts)
        removed = sorted(set(judged) - set(known_clauses))
        clauses = {**known_clauses, **{name: _removed_clause(name) for name in removed}}
        newest = results.newest
        suites = {run.suite for run in newest}
        suite = suite_version(known_clauses)
        if suites and suite not in suites:
            suite = max(newest, key=lambda run: run.date).suite
        columns = [run for run in newest if run.suite == suite]
        return cls(clauses, columns, [run for run in newest if run.suite != suite])

    @cached_property
    def chapters(self) -> dict[str, list[Clause]]:
        """The clauses by chapter, in the order of the specification."""
        found: dict[str, list[Clause]] = {}
        for clause in self.clauses.values():
            found.setdefault(clause.chapter, []).append(clause)
        return found

    def counts(self, run: Run, chapter: str | None = None) -> Counter[str]:
        """Return the number of clauses with each verdict, in one chapter or in all."""
        inside = self.clauses if chapter is None else {each.id for each in self.chapters[chapter]}
        return Counter(verdict for name, verdict in run.verdicts.items() if name in inside)

    def only_here(self, name_of: Callable[[Run], str]) -> dict[str, list[Clause]]:
        """Return the clauses that only one implementation violates and that another one satisfies.

        A run that lacks the names of a clause does not count if another run violates the clause.

        Args:
            name_of: Returns the name of the implementation (or column) of a run.

        Returns:
            For each name: the clauses that only runs of this name violate.
        """
        found: dict[str, list[Clause]] = {name_of(run): [] for run in self.columns}
        for clause in self.clauses.values():
            verdicts = [(name_of(run), run.verdicts.get(clause.id)) for run in self.columns]
            not_met = {name for name, verdict in verdicts if verdict in NOT_MET}
            violated = {name for name, verdict in verdicts if verdict in VIOLATED}
            not_met = violated or not_met
            passing = {name for name, verdict in verdicts if verdict == "pass"}
            if len(not_met) == 1 and passing - not_met:
                found[not_met.pop()].append(clause)
        return found

    def agreed(self) -> dict[str, list[Clause]]:
        """Return the clauses with equal verdicts in two or more runs, grouped by verdict.

        Runs that lack the names of a clause, or have no verdict for it, do not count.
        """
        found: dict[str, list[Clause]] = {}
        for clause in self.clauses.values():
            verdicts = [run.verdicts.get(clause.id, "not-offered") for run in self.columns]
            offered = [verdict for verdict in verdicts if verdict != "not-offered"]
            if len(offered) > 1 and len(set(offered)) == 1:
                found.setdefault(offered[0], []).append(clause)
        return found


def differences(clauses: Iterable[Clause], before: Run, after: Run) -> list[VerdictChange]:
    """Return the clauses with different verdicts in two runs, in the order of the clauses."""
    changes = (
        VerdictChange(each, before.verdicts.get(each.id, ""), after.verdicts.get(each.id, ""))
        for each in clauses
    )
    return [change for change in changes if change.before != change.after]


def history(results: Results) -> list[tuple[Run, Run]]:
    """Return pairs of successive runs of the same kind (`Run.kind`)."""
    kinds: dict[tuple[str, str, str, bool], list[Run]] = {}
    for run in results.runs:
        kinds.setdefault(run.kind, []).append(run)
    return [pair for members in kinds.values() for pair in pairwise(members)]


def _removed_clause(clause_id: str) -> Clause:
    return Clause(clause_id, "removed from the specification", "observed")
