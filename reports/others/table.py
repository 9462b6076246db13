"""Write the table of README.md, with one row for each implementation that has a report.

``python -m reports.others.table`` fails if the table is out of date. ``--write`` updates the
table.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from reports.others import catalogue
from reports.publishing.publish import RESULTS
from spec_tests.harness.conformance import verdicts

__all__ = ["PAGE", "update_table"]

PAGE = catalogue.HERE / "README.md"
#: The lines before and after the table in README.md.
BEGIN, END = "<!-- table -->\n", "<!-- end -->"


def render_table(results_folder: Path = RESULTS) -> str:
    """Return a table with one row for each implementation that has a report."""
    heads = ["implementation", "`tox -e others --`", *verdicts.VERDICTS, "what differs"]
    lines = [_format_row(heads), _format_row(["---"] * len(heads))]
    for name, each in catalogue.load().items():
        report = f"{each.report_target}/torch-{each.torch}_sim"
        if (results_folder / report).exists():
            title = f"[{each.title}](../results/{report}/summary.md)"
            lines.append(
                _format_row(
                    [title, f"`{name}`", *_count_verdicts(results_folder / report), each.differs]
                )
            )
    return "\n".join(lines) + "\n"


def _count_verdicts(report: Path) -> list[str]:
    """Return the number of clauses with each verdict, as texts."""
    clause_verdicts = verdicts.by_clause(verdicts.read(report / "verdicts.jsonl"))
    counts = Counter(clause_verdicts.values())
    return [str(counts[verdict]) for verdict in verdicts.VERDICTS]


def _format_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def update_table(page: str) -> str:
    """Return ``page`` with its table replaced by the current one."""
    before, _, tail = page.partition(BEGIN)
    _, _, after = tail.partition(END)
    return f"{before}{BEGIN}{render_table()}{END}{after}"


def main() -> int:
    """Check that the table in README.md is up to date, or update it with ``--write``."""
    parser = argparse.ArgumentParser(prog="python -m reports.others.table", description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the table")
    write = parser.parse_args().write
    page = PAGE.read_text(encoding="utf-8")
    current = update_table(page)
    if write:
        PAGE.write_text(current, encoding="utf-8")
    return int(not write and current != page)


if __name__ == "__main__":
    sys.exit(main())
