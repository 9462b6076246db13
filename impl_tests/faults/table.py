"""Counts of verdicts, and their tables in Markdown."""

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Counts", "Tally", "format_counts", "format_table"]

#: Kind of fault -> verdict -> number.
Counts = Mapping[str, Mapping[str, int]]


class Tally:
    """Counts of verdicts by kind of fault.

    Attributes:
        counts: Kind of fault -> verdict -> number.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, kind: str, verdict: str) -> None:
        """Count a verdict."""
        row = self.counts.setdefault(kind, {})
        row[verdict] = row.get(verdict, 0) + 1

    def total(self, verdicts: Iterable[str]) -> int:
        """Return how often one of ``verdicts`` occurred."""
        chosen = {*verdicts}
        rows = self.counts.values()
        return sum(n for row in rows for verdict, n in row.items() if verdict in chosen)


def format_counts(
    counts: Mapping[str, Counts], meanings: Mapping[str, str], bad: Sequence[str]
) -> str:
    """Return a table with a row for each kind and package, and the meanings of its columns.

    Args:
        counts: The name of a package -> its counts.
        meanings: Verdict -> its meaning. Verdicts that are not bad are left out if none occurred.
        bad: The bad verdicts.
    """
    found = {verdict for each in counts.values() for row in each.values() for verdict in row}
    shown = [verdict for verdict in meanings if verdict in found or verdict in bad]
    rows = [
        [kind, name, *(counts[name][kind].get(verdict, 0) for verdict in shown)]
        for kind in sorted({kind for each in counts.values() for kind in each})
        for name in sorted(counts)
        if kind in counts[name]
    ]
    marks = [" (bad)" if verdict in bad else "" for verdict in shown]
    lines = [
        f"* *{verdict}*{mark}: {meanings[verdict]}\n"
        for verdict, mark in zip(shown, marks, strict=True)
    ]
    return format_table(["fault", "library", *shown], rows) + "\nThe columns:\n\n" + "".join(lines)


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table whose cells are padded to the width of their column."""
    texts = [[*header], *([str(cell) for cell in row] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*texts, strict=True)]
    texts.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(map(str.ljust, row, widths))} |\n" for row in texts)
