"""The text of the verdicts of a run: counts by chapter, missing names, and the conclusion."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from spec_tests.machine import clauses
from spec_tests.machine.verdicts import VERDICTS, fails_run

_NONE: Mapping[str, str] = MappingProxyType({})


def table(found: Mapping[str, str], declared: Mapping[str, str] = _NONE) -> list[str]:
    """Return the lines of the summary: counts by chapter, then clauses that did not pass.

    Args:
        found: The verdict of each clause.
        declared: The result of `declared_by_clause`.
    """
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for title, counts in count_by_chapter(found).items():
        lines.append(f"{title:<16}" + "".join(f"{counts[each]:>12}" for each in VERDICTS))
    lines += [
        f"{verdict:>12}  {name}"
        for name, verdict in found.items()
        if verdict != "pass" and name not in declared
    ]
    if declared:
        noun = "clause" if len(declared) == 1 else "clauses"
        entries = ", ".join(dict.fromkeys(declared.values()))
        lines.append(f"not offered, as the register declares: {len(declared)} {noun} ({entries})")
    return lines


def count_by_chapter(found: Mapping[str, str]) -> dict[str, Counter[str]]:
    """Return the number of clauses with each verdict, for each chapter and in all.

    If a run has clauses that no target changes, "the target" counts the other ones.
    """
    members: dict[str, list[str]] = {}
    for name in sorted(found, key=_chapter_of):
        members.setdefault(_chapter_of(name), []).append(name)
    known = clauses.load()
    about_target = [name for name in found if name not in known or known[name].is_about_target]
    if len(about_target) < len(found):
        members["the target"] = about_target
    members["all"] = [*found]
    return {title: Counter(map(found.__getitem__, names)) for title, names in members.items()}


def _chapter_of(name: str) -> str:
    """Return the chapter of a clause; the first word of its id if the suite has it no longer."""
    known = clauses.load().get(name)
    return known.chapter if known else name.partition(".")[0]


def claim(found: Mapping[str, str], suite: str | None = None) -> str:
    """Return whether a run conforms to the suite, as a sentence.

    Args:
        found: The verdict of each clause of the run.
        suite: The version of the suite in the metadata of a saved run; None for this version.
    """
    known = clauses.load()
    title = f"suite {clauses.VERSION}"
    if suite not in (None, clauses.suite_version(known)):
        return f"{title} is not decided: the run is of another suite, {suite}"
    members = [each.id for each in known.values() if each.is_about_target]
    counts = Counter(found[name] for name in members if name in found)
    if counts.total() < len(members):
        decided = f"{counts.total()} of its {len(members)} clauses have a verdict"
        return f"{title} is not decided: {decided}"
    listed = ", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each])
    verb = "conforms" if counts.keys() <= {"pass", "not-run"} else "does not conform"
    return f"{verb} to {title}: {listed}"


def missing_names(tests: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line for each name that the target lacks, with the number of its clauses.

    Names of clauses that ``lacks`` declares are left out.
    """
    pairs = {
        (test["reason"], test["clause"])
        for test in tests
        if test["verdict"] == "not-offered" and fails_run(test) and "clause" in test
    }
    counts = Counter(reason for reason, _ in sorted(pairs)).most_common()
    return [f"{reason}: {n} {'clause' if n == 1 else 'clauses'}" for reason, n in counts]
