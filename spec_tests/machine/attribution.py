"""Decides which clauses a failure is about: those of its test, and those of a run.

One fault may fail the tests of many clauses in the same facts. Then the clauses that name the
facts fail, or else the first one of the specification. The others are not decided.
"""

from collections.abc import Iterable, Mapping, Sequence

from spec_tests.failure import Fact
from spec_tests.machine import clauses
from spec_tests.machine.clauses import Clause

#: The beginnings of the ids of clauses that a fault of any function of their chapter fails.
_OF_SEVERAL = (
    *("comm.devices", "comm.generators", "comm.no-memory", "comm.order"),
    *("functions.order", "functions.penalty", "divergences"),
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


def undecided(failures: Iterable[tuple[Iterable[Fact], Sequence[str]]]) -> set[str]:
    """Return the clauses that the failures of a run do not decide.

    Such a clause names none of the facts in which its tests fail, and each of these facts also
    fails a clause of the same function that names it or comes earlier in the specification.

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
    return {each.id for each in failed if _is_explained(each, failed, found)}


def _is_explained(clause: Clause, failed: Sequence[Clause], facts: _Facts) -> bool:
    """Return whether the failures of a clause show nothing but the faults of other clauses.

    Args:
        clause: The clause.
        failed: The failed clauses in the order of the specification.
        facts: The facts of the failed clauses.
    """
    earlier = failed[: failed.index(clause)]
    others = [each for each in failed if each is not clause and _may_explain(each, clause)]
    return bool(facts[clause.id]) and all(
        not clause.is_about(fact)
        and any(
            fact in facts[each.id] and (each in earlier or each.is_about(fact)) for each in others
        )
        for fact in facts[clause.id]
    )


def _may_explain(other: Clause, clause: Clause) -> bool:
    """Return whether one fault may fail both clauses."""
    is_of_several = any(map(clause.has_prefix, _OF_SEVERAL))
    return other.chapter == clause.chapter and (is_of_several or other.function == clause.function)
