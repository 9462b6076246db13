"""The table of README.md: the newest report of each implementation.

``python -m reports.others.table`` fails if the page has another; ``--write`` writes it.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from reports.others import catalogue
from reports.publish import HERE as REPORTS
from spec_tests.harness.conformance import verdicts

__all__ = ["PAGE", "with_table"]

PAGE = catalogue.HERE / "README.md"
#: What stands around the table.
BEGIN, END = "<!-- table -->\n", "<!-- end -->"


def table() -> str:
    """One row for each implementation that has a report."""
    heads = ["implementation", "`tox -e others --`", *verdicts.VERDICTS, "what differs"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for name, each in catalogue.load().items():
        report = newest_report(name)
        if report is not None:
            title = f"[{each.title}](../{report.name}/summary.md)"
            lines.append(_row([title, f"`{name}`", *_counts(report), each.differs]))
    return "\n".join(lines) + "\n"


def newest_report(name: str) -> Path | None:
    """The last of its reports: dates sort, and the second of a day ends in ``_2``."""
    found = [path for path in REPORTS.glob(f"*_{name}_sim*") if (path / "verdicts.jsonl").exists()]
    return max(found, key=lambda path: (path.name[:10], len(path.name), path.name), default=None)


def _counts(report: Path) -> list[str]:
    found = verdicts.by_clause(verdicts.read(report / "verdicts.jsonl"))
    counts = Counter(found.values())
    return [str(counts[verdict]) for verdict in verdicts.VERDICTS]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def with_table(page: str) -> str:
    """``page`` with the current table in place of its own."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(prog="python -m reports.others.table", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    write = parser.parse_args().write
    page = PAGE.read_text(encoding="utf-8")
    current = with_table(page)
    if write:
        PAGE.write_text(current, encoding="utf-8")
    return int(not write and current != page)


if __name__ == "__main__":
    sys.exit(main())
