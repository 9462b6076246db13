"""The text of the verdicts of a run: a table of counts by chapter, and names that are missing."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import VERDICTS, is_error

__all__ = ["missing_names", "table"]

#: The first words of clauses about PyTorch's C++ front end, and about the devices.
_WITHOUT_TARGET = {"cpp", "devices"}
_NONE: Mapping[str, str] = MappingProxyType({})


def table(found: Mapping[str, str], declared: Mapping[str, str] = _NONE) -> list[str]:
    """Return the lines of the summary: counts by chapter, then clauses that did not pass.

    If a run has clauses that no target changes, the row "the target" counts the other ones.

    Args:
        found: The verdict of each clause.
        declared: The result of `declared_by_clause`.
    """
    rows: dict[str, list[str]] = {}
    for name in sorted(found, key=_chapter_of):
        rows.setdefault(_chapter_of(name), []).append(name)
    about_target = [name for name in found if name.partition(".")[0] not in _WITHOUT_TARGET]
    if len(about_target) < len(found):
        rows["the target"] = about_target
    rows["all"] = [*found]
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for title, names in rows.items():
        counts = Counter(found[name] for name in names)
        lines.append(f"{title:<16}" + "".join(f"{counts[each]:>12}" for each in VERDICTS))
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
