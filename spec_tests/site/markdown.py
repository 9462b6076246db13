"""The matrix of verdicts as a Markdown page."""

from collections import Counter
from collections.abc import Iterator, Sequence

from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site.matrix import NOT_MET, Matrix
from spec_tests.site.runs import Run

__all__ = ["escape", "page"]

_HEAD = """\
# The matrix

Each row is the newest published run of an implementation, release of PyTorch and machine. The
numbers count clauses of [the specification](../spec_tests/SPECIFICATION.md). All rows are runs of
one version of the suite, which is the number of clauses and a hash of their ids.

`python -m reports build` generates this page and a web site. The site shows the smallest failing
call of each difference and the command that repeats it.
"""
_HEADER = ("", "implementation", "torch", "machine", "suite", *VERDICTS)
Cells = Sequence[object]


def page(matrix: Matrix) -> str:
    """Return the page with tables of runs, of chapters and of clauses that are not met."""
    lines = [
        _HEAD,
        *_table_lines(_HEADER, [_summary_row(matrix, run) for run in matrix.columns]),
        "",
    ]
    lines += _older_runs(matrix.older)
    lines += ["## By chapter", "", "Clauses that pass / clauses that were run.", ""]
    head = ("chapter", *range(1, len(matrix.columns) + 1))
    lines += _table_lines(head, [_chapter_row(matrix, each) for each in matrix.chapters])
    lines += ["", "## Clauses that at least one run does not pass", ""]
    rows = list(_not_met_rows(matrix))
    lines += (
        _table_lines(("clause", *head[1:]), rows)
        if rows
        else ["None: every run passes every clause that it ran."]
    )
    return "\n".join(lines) + "\n"


def _summary_row(matrix: Matrix, run: Run) -> Cells:
    place = list(matrix.columns).index(run) + 1
    counts = matrix.counts(run)
    return (
        _summary_link(place, run),
        run.target,
        run.release,
        run.hardware,
        run.suite,
        *(counts[each] for each in VERDICTS),
    )


def _summary_link(text: object, run: Run) -> str:
    return f"[{text}]({run.folder}/summary.md)"


def _older_runs(runs: Sequence[Run]) -> list[str]:
    links = (f"{escape(_summary_link(run.label, run))} ({escape(run.suite)})" for run in runs)
    return [f"Runs of other versions of the suite: {', '.join(links)}.", ""] if runs else []


def _chapter_row(matrix: Matrix, chapter: str) -> Cells:
    counts = [matrix.counts(run, chapter) for run in matrix.columns]
    return (chapter, *(_pass_ratio(each) for each in counts))


def _pass_ratio(counts: Counter[str]) -> str:
    judged = sum(counts.values()) - counts["not-run"]
    return f"{counts['pass']} / {judged}" if judged else "-"


def _not_met_rows(matrix: Matrix) -> Iterator[Cells]:
    for clause in matrix.clauses.values():
        verdicts = [run.verdicts.get(clause.id, "") for run in matrix.columns]
        if set(verdicts) & set(NOT_MET):
            yield (f"`{clause.id}`", *("" if each == "pass" else each or "-" for each in verdicts))


def _table_lines(head: Cells, rows: Sequence[Cells]) -> list[str]:
    return [_table_line(head), _table_line(["---"] * len(head)), *map(_table_line, rows)]


def _table_line(cells: Cells) -> str:
    return "| " + " | ".join(escape(str(cell)) for cell in cells) + " |"


def escape(text: str) -> str:
    """Return ``text`` with the special characters of Markdown and HTML escaped."""
    text = " ".join(text.split())
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;")):
        text = text.replace(character, entity)
    return text
