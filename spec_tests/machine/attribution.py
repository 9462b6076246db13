"""Decides which clauses a failure is about: those of its test, and those of a run.

One fault may fail the tests of many clauses in the same facts. Then the clauses that name the
facts fail, or else the first one of the specification. The others are not decided.
"""

from collections.abc import Iterable, Mapping, Sequence

from spec_tests.failure import Fact
from spec_tests.machine import clauses
from spec_tests.machine.clauses import Clause

#: The beginnings of the ids of clauses about several functions of their chapter together.
_COMPOSED = (
    *("comm.devices", "comm.gather.undoes-scatter", "comm.generators", "comm.no-memory"),
    *("comm.order", "functions.order", "functions.penalty", "functions.backward-on-own-device"),
    *("scatter_gather.gather-undoes-scatter", "parallel_apply.hazards.wrapped-twice"),
)
#: For each clause, the facts in which its tests fail, without the details in parentheses.
_Facts = dict[str, set[Fact]]


def failed_by(facts: Iterable[Fact], names: Sequence[str], known: Mapping[str, Clause]) -> _Facts:
    """Return the clauses that a failed test fails, with their facts.

    A fact fails the clauses of the test that are about it; any other fact, the first clause. The
    test does not decide its other clauses.

    Args:
        facts: The facts that differ.
        names: The clauses of the test.
        known: The clauses by id.
    """
    found: _Facts = {}
    for fact in facts:
        about = [name for name in names if known[name].is_about(fact)]
        for name in about or names[:1]:
            plain = fact._replace(name=fact.name.partition(" (")[0])
            found.setdefault(name, set()).add(plain)
    return found or {names[0]: set()}


def undecided(failures: Iterable[tuple[Iterable[Fact], Sequence[str]]]) -> dict[str, str]:
    """Return the clauses that the failures of a run do not decide, each with one that explains it.

    Such a clause names none of the facts in which its tests fail. Each of these facts also fails
    a clause of the same function, or of several, that names it or comes earlier in the
    specification. If the clause names other facts, or is about several functions together, it is
    enough that such a clause fails in any fact that it names.

    Args:
        failures: For each failed test, the facts that differ and the clauses that it fails.
    """
    known = clauses.load()
    found: _Facts = {}
    for facts, names in failures:
        if known.keys() >= {*names}:
            for name, own in failed_by(facts, names, known).items():
                found.setdefault(name, set()).update(own)
    failed = [each for name, each in known.items() if name in found]
    explained = [each for place, each in enumerate(failed) if _is_explained(place, failed, found)]
    decided = [each for each in failed if each not in explained]
    return {each.id: _find_cause(each, decided, found) for each in explained}


def _find_cause(clause: Clause, decided: Iterable[Clause], facts: _Facts) -> str:
    """Return the clause in ``decided`` that explains the most facts of ``clause``."""

    def rank(other: Clause) -> tuple[bool, int, int]:
        same = facts[clause.id] & facts[other.id]
        explains = [fact for fact in same if _explains(other, fact, clause, is_earlier=True)]
        is_about = sum(map(other.is_about, explains))
        return other.chapter == clause.chapter, is_about, len(explains)

    return max(decided, key=rank).id


def _is_explained(place: int, failed: Sequence[Clause], facts: _Facts) -> bool:
    """Return whether the failures of a clause show nothing but the faults of other clauses.

    Args:
        place: The number of the clause in ``failed``.
        failed: The failed clauses in the order of the specification.
        facts: The facts of the failed clauses.
    """
    clause = failed[place]
    if not facts[clause.id] or any(map(clause.is_about, facts[clause.id])):
        return False
    others = [
        (other, number < place)
        for number, other in enumerate(failed)
        if number != place and other.chapter == clause.chapter
    ]
    if (clause.facts or _is_composed(clause)) and any(
        _explains(other, fact, clause, is_earlier=False)
        for other, _ in others
        for fact in facts[other.id]
    ):
        return True
    return all(
        any(
            fact in facts[other.id] and _explains(other, fact, clause, is_earlier=is_earlier)
            for other, is_earlier in others
        )
        for fact in facts[clause.id]
    )


def _explains(other: Clause, fact: Fact, clause: Clause, *, is_earlier: bool) -> bool:
    """Return whether a fact that fails both clauses is a fault of ``other``."""
    may_be_one = other.function == clause.function or _is_of_several(clause)
    if other.is_about(fact):
        return may_be_one or _is_of_several(other)
    return is_earlier and may_be_one


def _is_of_several(clause: Clause) -> bool:
    return _is_composed(clause) or clause.has_prefix("divergences")


def _is_composed(clause: Clause) -> bool:
    return any(map(clause.has_prefix, _COMPOSED))
