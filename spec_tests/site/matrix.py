"""Clauses beside implementations: the verdict of each, and what follows from the whole."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from spec_tests.harness.conformance.clauses import Clause
from spec_tests.site.runs import Run, Shelf

__all__ = ["OFF", "Change", "Matrix", "differences", "history"]

#: The verdicts of a target that does otherwise than the clause says.
OFF = ("fail", "not-offered", "known")
#: Those of one that offers what the clause is about.
BROKEN = ("fail", "known")


@dataclass(frozen=True)
class Change:
    """A clause of which two runs say different things; empty where one did not judge it."""

    clause: Clause
    before: str
    after: str


@dataclass(frozen=True)
class Matrix:
    """The columns, and a row for each clause.

    Args:
        clauses: By id; what a run judged and the specification no longer has comes last.
        columns: One run each.
    """

    clauses: Mapping[str, Clause]
    columns: Sequence[Run]

    @classmethod
    def of(cls, shelf: Shelf, known: Mapping[str, Clause]) -> "Matrix":
        """The matrix of the newest run of each kind."""
        judged = dict.fromkeys(name for run in shelf.runs for name in run.verdicts)
        gone = sorted(set(judged) - set(known))
        return cls({**known, **{name: _gone(name) for name in gone}}, shelf.columns)

    @cached_property
    def chapters(self) -> dict[str, list[Clause]]:
        """The clauses by chapter, in the order of the specification."""
        found: dict[str, list[Clause]] = {}
        for clause in self.clauses.values():
            found.setdefault(clause.chapter, []).append(clause)
        return found

    def counts(self, run: Run, chapter: str | None = None) -> Counter[str]:
        """How many clauses of a chapter, or of all, have each verdict in ``run``."""
        inside = self.clauses if chapter is None else {each.id for each in self.chapters[chapter]}
        return Counter(verdict for name, verdict in run.verdicts.items() if name in inside)

    def only_here(self, kind: Callable[[Run], str]) -> dict[str, list[Clause]]:
        """The clauses that runs of one kind do not keep, while all others that judged them do.

        Who does not offer a clause that another breaks says nothing of it.
        """
        found: dict[str, list[Clause]] = {kind(run): [] for run in self.columns}
        for clause in self.clauses.values():
            verdicts = [(kind(run), run.verdicts.get(clause.id)) for run in self.columns]
            off = {name for name, verdict in verdicts if verdict in OFF}
            broken = {name for name, verdict in verdicts if verdict in BROKEN}
            off = broken or off
            passing = {name for name, verdict in verdicts if verdict == "pass"}
            if len(off) == 1 and passing - off:
                found[off.pop()].append(clause)
        return found

    def agreed(self) -> dict[str, list[Clause]]:
        """By verdict, the clauses of which all that offer and judged them, two at least, agree."""
        found: dict[str, list[Clause]] = {}
        for clause in self.clauses.values():
            found_here = [run.verdicts.get(clause.id, "not-offered") for run in self.columns]
            said = [verdict for verdict in found_here if verdict != "not-offered"]
            if len(said) > 1 and len(set(said)) == 1:
                found.setdefault(said[0], []).append(clause)
        return found


def differences(clauses: Iterable[Clause], before: Run, after: Run) -> list[Change]:
    """Where two runs differ, in the order of the clauses."""
    changes = (
        Change(each, before.verdicts.get(each.id, ""), after.verdicts.get(each.id, ""))
        for each in clauses
    )
    return [change for change in changes if change.before != change.after]


def history(shelf: Shelf) -> list[tuple[Run, Run]]:
    """Each run with the one of its kind before it."""
    kinds: dict[tuple[str, str, str, bool], list[Run]] = {}
    for run in shelf.runs:
        kinds.setdefault(run.kind, []).append(run)
    return [pair for members in kinds.values() for pair in pairwise(members)]


def _gone(name: str) -> Clause:
    return Clause(name, "not in today's specification", "observed")
