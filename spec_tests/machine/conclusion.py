"""The conclusion of a run: the table of verdicts by chapter, and whether the target conforms."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from spec_tests.machine import clauses, register
from spec_tests.machine.clauses import Clause
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import VERDICTS, Evidence, Verdict

#: The conclusion about a run that violates only clauses that torch.nn.parallel violates, too.
AS_REFERENCE = f"as {REFERENCE}"
#: The verdicts of clauses that the target violates.
_VIOLATED: tuple[Verdict, ...] = ("fail", "not-offered", "known")
#: The least number of examples a test that counts as enough.
FEW_EXAMPLES = 10


class Conclusion(NamedTuple):
    """The conclusion of a run.

    Args:
        word: *conforms*, `AS_REFERENCE`, *does not conform*, or *is not decided*: fewer than nine
            of ten clauses about the target are decided, and no clause fails that
            torch.nn.parallel passes. A clause that was not run, or that needs a name that the
            target lacks, is not decided.
        text: How many clauses the run has decided, and how many the target violates.
        decided: How many clauses about the target the run has decided, as in ``text``.
        notes: Why a whole run has decided fewer clauses than the suite has, whether its tests
            had few examples, and the known clauses that torch.nn.parallel passes; empty for
            another run.
    """

    word: str
    text: str
    decided: str
    notes: tuple[str, ...]

    @property
    def claim(self) -> str:
        """The conclusion as a sentence."""
        title = f"suite {clauses.VERSION}"
        place = {"is not decided": f"{title} {self.word}", AS_REFERENCE: f"{self.word} in {title}"}
        return f"{place.get(self.word, f'{self.word} to {title}')}: {self.text}"


def conclude(
    evidence: Mapping[str, Evidence],
    specification: Mapping[str, Clause],
    suite: str | None = None,
    torch: str | None = None,
    examples: int | None = None,
) -> Conclusion:
    """Return the conclusion of a run.

    Args:
        evidence: The verdict of each clause of the run, with its evidence.
        specification: The clauses of the suite by id.
        suite: The version of the suite in the metadata of a saved run; None for this version.
        torch: The version of PyTorch of a saved run; None for the installed one.
        examples: The number of examples of a test; None if it is not known.
    """
    verdicts = {name: found.verdict for name, found in evidence.items()}
    members = [clause.id for clause in specification.values() if clause.is_about_target]
    counts = Counter(verdicts.get(name, "not-run") for name in members)
    decided = counts.total() - counts["not-run"] - counts["not-offered"]
    count = f"{decided} of {len(members)} decided"
    text = f"{count}, {len(specification)} clauses"
    is_whole = verdicts.keys() >= {*members}
    note = (
        f"{len(specification) - len(members)} of the {len(specification)} clauses are about "
        f"devices; of the other {len(members)}, {counts['not-run']} are not-run, and "
        f"{counts['not-offered']} need a name that the target lacks"
    )
    notes: tuple[str, ...] = (note,) if is_whole else ()
    if is_whole and examples and examples < FEW_EXAMPLES:
        notes += (f"{examples} examples a test: with more, other tests may fail",)
    if suite not in (None, clauses.suite_version(specification)):
        text = f"the run is of another suite, {suite}"
        return Conclusion("is not decided", text, count, notes)
    if not is_whole:
        return Conclusion("is not decided", text, count, notes)
    failed = [name for name in members if verdicts[name] == "fail"]
    out_of_date = {name for name in failed if evidence[name].is_stale}
    violated = {name for name in members if verdicts[name] in _VIOLATED} - out_of_date
    first = violated - register.violated_by_reference(torch)
    # A failure of one clause may leave others undecided.
    if decided * 10 < len(members) * 9 and not any(verdicts[name] == "fail" for name in first):
        return Conclusion("is not decided", text, count, notes)
    counts["fail"] -= len(out_of_date)
    parts = [f"{counts[each]} {each}" for each in _VIOLATED if counts[each]]
    parts += [f"{len(out_of_date)} with records that are out of date"] if out_of_date else []
    text += f"; {', '.join(parts)}" if parts else ""
    if not first:
        return Conclusion(AS_REFERENCE if violated else "conforms", text, count, notes)
    text += f"; {REFERENCE} passes {len(first)} of the {len(violated)} violated clauses"
    known = sorted(name for name in first if verdicts[name] == "known")
    notes += (f"known clauses that {REFERENCE} passes: {', '.join(known)}",) if known else ()
    return Conclusion("does not conform", text, count, notes)


def count_by_chapter(
    verdicts: Mapping[str, str], specification: Mapping[str, Clause]
) -> dict[str, Counter[str]]:
    """Return the number of clauses with each verdict, for each chapter and in all.

    If a run has clauses that no target changes, "the target" counts the other ones. Of a clause
    that the suite has no longer, the chapter is the first word of the id.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in clauses.CHAPTERS}
    about_target: Counter[str] = Counter()
    for name, verdict in verdicts.items():
        clause = specification.get(name)
        chapter = clause.chapter if clause else name.partition(".")[0]
        counts.setdefault(chapter, Counter())[verdict] += 1
        about_target[verdict] += clause is None or clause.is_about_target
    if about_target.total() < len(verdicts):
        counts["the target"] = about_target
    counts["all"] = Counter(verdicts.values())
    return {title: found for title, found in counts.items() if found}


def summary_lines(
    evidence: Mapping[str, Evidence], specification: Mapping[str, Clause], conclusion: Conclusion
) -> list[str]:
    """Return the lines about a run: counts, clauses that did not pass, and the conclusion."""
    verdicts = {name: found.verdict for name, found in evidence.items()}
    rows = {"chapter": VERDICTS} | {
        title: tuple(str(counts[verdict]) for verdict in VERDICTS)
        for title, counts in count_by_chapter(verdicts, specification).items()
    }
    lines = [f"{title:<16}{''.join(map('{:>12}'.format, row))}" for title, row in rows.items()]
    for name, each in evidence.items():
        if each.verdict != "pass" and not each.declared:
            reason = f": {each.reason}" if verdicts[name] == "not-run" else ""
            if each.is_stale and each.verdict == "fail":
                reason = ": recorded, but the tests pass"
            lines.append(f"{verdicts[name]:>12}  {name}{reason}")
    declared = [each.declared for each in evidence.values() if each.declared]
    if declared:
        number, entries = clauses.format_count(len(declared)), ", ".join(dict.fromkeys(declared))
        lines.append(f"not offered, as the register declares: {number} ({entries})")
    missing = Counter(
        each.reason
        for each in evidence.values()
        if each.verdict == "not-offered" and not each.declared
    )
    lines += [f"{text}: {clauses.format_count(number)}" for text, number in missing.most_common()]
    if undecided := sum(each.is_undecided for each in evidence.values()):
        failed = sum(each.verdict == "fail" for each in evidence.values())
        lines.append(
            f"{undecided} of {clauses.format_count(undecided + failed)} with failed tests are "
            "not-run: their tests fail in facts of other clauses"
        )
    chapters = {specification[name].chapter for name in verdicts.keys() & specification.keys()}
    left_out = Counter(each.chapter for each in specification.values() if each.id not in verdicts)
    lines += [
        f"without a verdict in the chapter {chapter}: {clauses.format_count(left_out[chapter])}"
        for chapter in left_out
        if chapter in chapters
    ]
    return [*lines, conclusion.claim, *conclusion.notes]
