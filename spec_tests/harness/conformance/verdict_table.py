"""The text of the verdicts of a run: a table of counts by chapter, and names that are missing."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import VERDICTS, is_error

__all__ = ["missing_names", "table"]

_NONE: Mapping[str, str] = MappingProxyType({})


def table(found: Mapping[str, str], declared: Mapping[str, str] = _NONE) -> list[str]:
    """Return the lines of the summary: counts by chapter, then clauses that did not pass.

    Args:
        found: The verdict of each clause.
        declared: The result of `declared_by_clause`.
    """
    counts = Counter((_chapter_of(name), verdict) for name, verdict in found.items())
    chapters = sorted({chapter for chapter, _ in counts})
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for chapter in chapters:
        numbers = "".join(f"{counts[chapter, verdict]:>12}" for verdict in VERDICTS)
        lines.append(f"{chapter:<16}{numbers}")
    totals = Counter(found.values())
    lines.append(f"{'all':<16}" + "".join(f"{totals[verdict]:>12}" for verdict in VERDICTS))
    lines += [
        f"{verdict:>12}  {name}"
        for name, verdict in found.items()
        if verdict != "pass" and name not in declared
    ]
    if declared:
        clauses = "clause" if len(declared) == 1 else "clauses"
        entries = ", ".join(dict.fromkeys(declared.values()))
        lines.append(
            f"not offered, as the register declares: {len(declared)} {clauses} ({entries})"
        )
    return lines


def _chapter_of(name: str) -> str:
    """Return the chapter of a clause; the first word of its id if the suite has it no longer."""
    known = clauses.load().get(name)
    return known.chapter if known else name.partition(".")[0]


def missing_names(tests: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line for each name that the target lacks, with the number of its clauses.

    Names of clauses that ``lacks`` declares are left out.
    """
    pairs = {
        (test["reason"], test["clause"])
        for test in tests
        if test["verdict"] == "not-offered" and is_error(test) and "clause" in test
    }
    counts = Counter(reason for reason, _ in sorted(pairs)).most_common()
    return [f"{reason}: {n} {'clause' if n == 1 else 'clauses'}" for reason, n in counts]
