"""The conclusion of a run: the table of verdicts by chapter, and whether the target conforms."""

from collections import Counter
from collections.abc import Mapping

from spec_tests.machine import clauses, register
from spec_tests.machine.clauses import Clause
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import VERDICTS, Evidence

#: The conclusion about a run that violates only clauses that torch.nn.parallel violates, too.
AS_REFERENCE = f"as {REFERENCE}"
#: The verdicts of clauses that the target violates.
_VIOLATED = ("fail", "not-offered", "known")


def summary_lines(
    evidence: Mapping[str, Evidence],
    known: Mapping[str, Clause],
    suite: str | None = None,
    torch: str | None = None,
) -> list[str]:
    """Return the lines about a run: counts, clauses that did not pass, and the conclusion.

    Args:
        evidence: The evidence for each clause of the run.
        known: The clauses of the suite by id.
        suite: See `conclude`.
        torch: See `conclude`.
    """
    verdict_of = {name: found.verdict for name, found in evidence.items()}
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for title, counts in count_by_chapter(verdict_of, known).items():
        lines.append(f"{title:<16}" + "".join(f"{counts[verdict]:>12}" for verdict in VERDICTS))
    lines += [
        f"{each.verdict:>12}  {name}" + (f": {each.reason}" if each.verdict == "not-run" else "")
        for name, each in evidence.items()
        if each.verdict != "pass" and not each.declared
    ]
    if declared := [each.declared for each in evidence.values() if each.declared]:
        number, entries = clauses.count(len(declared)), ", ".join(dict.fromkeys(declared))
        lines.append(f"not offered, as the register declares: {number} ({entries})")
    missing = Counter(
        each.reason
        for each in evidence.values()
        if each.verdict == "not-offered" and not each.declared
    )
    lines += [f"{text}: {clauses.count(number)}" for text, number in missing.most_common()]
    if undecided := sum(each.is_undecided for each in evidence.values()):
        failed = undecided + sum(each.verdict == "fail" for each in evidence.values())
        lines.append(
            f"{undecided} of {clauses.count(failed)} with failed tests are not-run: their tests "
            "fail in facts of other clauses"
        )
    sentences = claim(verdict_of, known, suite, torch), explain_undecided(verdict_of, known)
    return [*lines, *filter(None, sentences)]


def count_by_chapter(
    verdict_of: Mapping[str, str], known: Mapping[str, Clause]
) -> dict[str, Counter[str]]:
    """Return the number of clauses with each verdict, for each chapter and in all.

    If a run has clauses that no target changes, "the target" counts the other ones.

    Args:
        verdict_of: The verdict of each clause of the run. The suite may have some no longer: their
            chapter is the first word of the id.
        known: The clauses of the suite by id.
    """

    def chapter_of(name: str) -> str:
        return known[name].chapter if name in known else name.partition(".")[0]

    members: dict[str, list[str]] = {}
    for name in sorted(verdict_of, key=chapter_of):
        members.setdefault(chapter_of(name), []).append(name)
    about_target = [
        name for name in verdict_of if name not in known or known[name].is_about_target
    ]
    if len(about_target) < len(verdict_of):
        members["the target"] = about_target
    members["all"] = [*verdict_of]
    return {title: Counter(map(verdict_of.__getitem__, names)) for title, names in members.items()}


def conclude(
    verdict_of: Mapping[str, str],
    known: Mapping[str, Clause],
    suite: str | None = None,
    torch: str | None = None,
) -> tuple[str, str]:
    """Return the conclusion of a run, and how many clauses it has decided.

    The conclusion is *conforms*, `AS_REFERENCE`, *does not conform*, or *is not decided*: fewer
    than nine of ten clauses about the target are decided, and no clause fails that
    torch.nn.parallel passes. A clause that was not run, or that needs a name that the target
    lacks, is not decided.

    Args:
        verdict_of: The verdict of each clause of the run.
        known: The clauses of the suite by id.
        suite: The version of the suite in the metadata of a saved run; None for this version.
        torch: The version of PyTorch of a saved run; None for the installed one.
    """
    if suite not in (None, clauses.suite_version(known)):
        return "is not decided", f"the run is of another suite, {suite}"
    members = [clause.id for clause in known.values() if clause.is_about_target]
    counts = Counter(verdict_of.get(name, "not-run") for name in members)
    decided = counts.total() - counts["not-run"] - counts["not-offered"]
    text = f"{decided} of {len(members)} decided, {len(known)} clauses"
    if not verdict_of.keys() >= {*members}:
        return "is not decided", text
    violated = {name for name in members if verdict_of[name] in _VIOLATED}
    first = violated - register.violated_by_reference(torch)
    # A failure of one clause may leave others undecided.
    if decided * 10 < len(members) * 9 and not any(verdict_of[name] == "fail" for name in first):
        return "is not decided", text
    if not violated:
        return "conforms", text
    text += "; " + ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in _VIOLATED if counts[verdict]
    )
    if not first:
        return AS_REFERENCE, text
    return "does not conform", f"{text}; {len(first)} of them pass in {REFERENCE}"


def claim(
    verdict_of: Mapping[str, str],
    known: Mapping[str, Clause],
    suite: str | None = None,
    torch: str | None = None,
) -> str:
    """Return whether a run conforms to the suite, as a sentence; see `conclude`."""
    word, text = conclude(verdict_of, known, suite, torch)
    title = f"suite {clauses.VERSION}"
    place = {"is not decided": f"{title} {word}", AS_REFERENCE: f"{word} in {title}"}
    return f"{place.get(word, f'{word} to {title}')}: {text}"


def explain_undecided(verdict_of: Mapping[str, str], known: Mapping[str, Clause]) -> str:
    """Return why a whole run has decided fewer clauses than it has about the target, else ''."""
    members = [clause.id for clause in known.values() if clause.is_about_target]
    if not verdict_of.keys() >= {*members}:
        return ""
    counts = Counter(verdict_of[name] for name in members)
    return (
        f"{len(known) - len(members)} of the {len(known)} clauses are about devices; of the other "
        f"{len(members)}, {counts['not-run']} are not-run, and {counts['not-offered']} need a "
        "name that the target lacks"
    )
