"""The command ``diff``: the clauses whose verdicts differ between two runs."""

import argparse
from collections.abc import Mapping

from spec_tests.cli import summary
from spec_tests.machine.verdicts import VERDICTS
from spec_tests.reporting import runs
from spec_tests.reporting.markdown import format_table

#: The verdict of a clause that no test of a run decides.
ABSENT = "not-run"
REGRESSION, IMPROVEMENT, APPEARED, GONE = "regression", "improvement", "appeared", "disappeared"


def main(options: argparse.Namespace) -> int:
    """Print the clauses that differ, and write a page. Return 1 if there is a regression.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    old = runs.load_file(options.old)
    new = runs.load_file(options.new, [old.name])
    changed = changes(old.verdicts, new.verdicts)
    for title, run in (("old", old), ("new", new)):
        print(f"{title}: {run.label}{' (interrupted)' if run.about.get('interrupted') else ''}")
    for kind, name, before, after in changed:
        if kind != GONE:
            print(f"{kind:<12} {before:>11} -> {after:<11} {name}")
    if gone := sum(kind == GONE for kind, *_ in changed):
        print(f"{GONE:<12} {gone} clauses that the new run does not decide (--to lists them)")
    count = sum(kind == REGRESSION for kind, *_ in changed)
    total = (
        f"{count} regressions, {len(changed) - count} other changes, {len(new.verdicts)} clauses"
    )
    print(total)
    head = ("change", "clause", old.label, new.label)
    if options.to:
        lines = ["# Changed clauses", "", total, "", *format_table(head, changed), ""]
        summary.write(options.to, "\n".join(lines))
    return int(bool(count))


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return kind, clause and both verdicts for each clause that differs, regressions first."""
    changed = []
    for name in {**old, **new}:
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if before != after:
            changed.append((_kind(before, after), name, before, after))
    order = (REGRESSION, IMPROVEMENT, APPEARED, GONE)
    return sorted(changed, key=lambda each: (order.index(each[0]), each[1]))


def _kind(before: str, after: str) -> str:
    """Return the kind of a change. `VERDICTS` has the worst verdict first."""
    if ABSENT in (before, after):
        return APPEARED if before == ABSENT else GONE
    return REGRESSION if VERDICTS.index(after) < VERDICTS.index(before) else IMPROVEMENT
