"""The command ``diff``: the clauses whose verdicts differ between two runs."""

import argparse
from collections.abc import Mapping

from spec_tests.cli.report import write
from spec_tests.machine.verdicts import VERDICTS, Evidence
from spec_tests.reporting import runs
from spec_tests.reporting.markdown import format_table

#: The verdict of a clause that no test of a run decides.
ABSENT = "not-run"
REGRESSION, IMPROVEMENT, APPEARED, GONE = "regression", "improvement", "appeared", "disappeared"
OTHERWISE = "fails otherwise"
#: What is printed in place of the verdict of a clause with a record out of date.
LEFT = "passes, record left"
#: A failure that the register of the new run records or declares, and a record out of date.
RECORDED, REPAIRED = "recorded", "repaired"


def main(options: argparse.Namespace) -> int:
    """Print the clauses that differ, and write a page. Return 1 if there is a regression.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    old = runs.load_file(options.old)
    new = runs.load_file(options.new, [old.name])
    changed = changes(old.evidence, new.evidence)
    for title, run in (("old", old), ("new", new)):
        state = f" ({run.about['incomplete']})" if "incomplete" in run.about else ""
        print(f"{title}: {run.label}{state}")
    for kind, name, before, after in changed:
        if kind != GONE:
            print(f"{kind:<15} {before:>11} -> {after:<11} {name}")
    if gone := sum(kind == GONE for kind, *_ in changed):
        print(f"{GONE:<15} {gone} clauses that the new run does not decide (--to lists them)")
    count = sum(kind == REGRESSION for kind, *_ in changed)
    total = (
        f"{count} regressions, {len(changed) - count} other changes, {len(new.verdicts)} clauses"
    )
    print(total)
    head = ("change", "clause", old.label, new.label)
    if options.to:
        lines = ["# Changed clauses", "", total, "", *format_table(head, changed), ""]
        write(options.to, "\n".join(lines))
    return int(bool(count))


def changes(
    old: Mapping[str, Evidence], new: Mapping[str, Evidence]
) -> list[tuple[str, str, str, str]]:
    """Return kind, clause and both verdicts for each clause that differs, regressions first.

    A clause that fails only because of a record out of date has `LEFT` in place of a verdict.
    """
    changed = []
    for name in {**old, **new}:
        before, after = (each.get(name, Evidence(ABSENT)) for each in (old, new))
        if after.is_stale and not before.is_stale:
            kind = REPAIRED
        elif before.verdict != after.verdict:
            kind = _kind(before, after)
        elif (
            after.verdict != ABSENT
            and before.failure
            and after.failure
            and before.failure.key != after.failure.key
        ):
            kind = OTHERWISE
        else:
            continue
        old_text, new_text = (LEFT if each.is_stale else each.verdict for each in (before, after))
        changed.append((kind, name, old_text, new_text))
    order = (REGRESSION, OTHERWISE, REPAIRED, IMPROVEMENT, RECORDED, APPEARED, GONE)
    return sorted(changed, key=lambda each: (order.index(each[0]), each[1]))


def _kind(before: Evidence, after: Evidence) -> str:
    """Return the kind of a change. `VERDICTS` has the worst verdict first."""
    if before.verdict == "fail" and (after.verdict == "known" or after.declared):
        return RECORDED
    if before.verdict == "pass" and after.is_undecided:
        return REGRESSION
    if ABSENT in (before.verdict, after.verdict):
        return APPEARED if before.verdict == ABSENT else GONE
    is_worse = VERDICTS.index(after.verdict) < VERDICTS.index(before.verdict)
    return REGRESSION if is_worse else IMPROVEMENT
