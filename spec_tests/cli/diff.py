"""The command ``diff``: the clauses whose verdicts differ between two runs."""

import argparse
from collections.abc import Mapping

from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.harness.input_files import RefusedError
from spec_tests.site import runs
from spec_tests.site.markdown import format_table

__all__ = ["changes", "diff"]

#: The verdict of a clause that no test of a run decides.
ABSENT = "not-run"
REGRESSION, IMPROVEMENT, APPEARED, GONE = "regression", "improvement", "appeared", "disappeared"


def diff(options: argparse.Namespace) -> int:
    """Print the clauses that differ, and write a page. Return 1 if there is a regression.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    found = [runs.read(path) for path in (options.old, options.new)]
    old, new = ({name: each.verdict for name, each in run.items()} for _, run in found)
    rows = changes(old, new)
    for kind, name, before, after in rows:
        print(f"{kind:<12} {before:>11} -> {after:<11} {name}")
    count = sum(kind == REGRESSION for kind, *_ in rows)
    total = f"{count} regressions, {len(rows) - count} other changes, {len(new)} clauses"
    print(total)
    if options.to:
        head = ("change", "clause", str(options.old), str(options.new))
        page = [f"# {options.old} and {options.new}", "", total, "", *format_table(head, rows), ""]
        try:
            options.to.write_text("\n".join(page), encoding="utf-8")
        except OSError as error:
            raise RefusedError(str(error)) from None
    return int(bool(count))


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return kind, clause and both verdicts for each clause that differs, regressions first."""
    rows = []
    for name in {**old, **new}:
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if before != after:
            rows.append((_kind(before, after), name, before, after))
    order = (REGRESSION, IMPROVEMENT, APPEARED, GONE)
    return sorted(rows, key=lambda row: (order.index(row[0]), row[1]))


def _kind(before: str, after: str) -> str:
    """Return the kind of a change. `VERDICTS` has the worst verdict first."""
    if ABSENT in (before, after):
        return APPEARED if before == ABSENT else GONE
    return REGRESSION if VERDICTS.index(after) < VERDICTS.index(before) else IMPROVEMENT
