"""The verdict of each clause for each implementation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spec_tests.harness.conformance.clauses import Clause, suite_version
from spec_tests.site.runs import Results, Run

__all__ = ["NOT_MET", "Matrix"]

#: The verdicts of targets that do not satisfy a clause.
NOT_MET = ("fail", "not-offered", "known")


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


def _removed_clause(clause_id: str) -> Clause:
    return Clause(clause_id, "removed from the specification", "observed")
