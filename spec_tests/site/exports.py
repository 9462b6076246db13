"""Export runs and benchmarks as CSV, JSON lines and badges."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site.matrix import Matrix
from spec_tests.site.runs import BenchmarkReport, Run

__all__ = ["badge", "bench_csv", "matrix_csv", "run_csv", "run_jsonl"]

_TEST_COLUMNS = ("clause", "test", "verdict", "reason", "difference", "call")
#: The characters with which a formula in a spreadsheet begins.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
#: The order of the verdicts in a badge.
_BADGE_ORDER = ("pass", "fail", "not-offered", "known", "not-run")
#: The colour of the badge of a run, by the worst verdict of the run.
_COLOUR = {
    "fail": "red",
    "not-offered": "orange",
    "known": "yellow",
    "pass": "brightgreen",
    "not-run": "lightgrey",
}


def matrix_csv(matrix: Matrix) -> str:
    """Return CSV with a row for each clause and a column for each run."""
    head = ["clause", "says", "basis", "source", *(run.label for run in matrix.columns)]
    return _format_csv(
        head,
        (
            [each.id, each.says, each.basis, each.source]
            + [run.verdicts.get(each.id, "") for run in matrix.columns]
            for each in matrix.clauses.values()
        ),
    )


def run_csv(run: Run) -> str:
    """Return CSV with a row for each test."""
    return _format_csv(
        _TEST_COLUMNS, ([test.get(key, "") for key in _TEST_COLUMNS] for test in run.tests)
    )


def bench_csv(bench: BenchmarkReport) -> str:
    """Return CSV with a row for each benchmark of each run, in seconds and bytes."""
    head = ["run", "group", "library", "q1", "median", "q3", "peak_bytes"]
    return _format_csv(
        head,
        (
            [place, each["group"], each["extra_info"]["library"]]
            + [each["stats"][key] for key in ("q1", "median", "q3")]
            + [each["extra_info"].get("peak_bytes", "")]
            for place, run in enumerate(bench.data["runs"], 1)
            for each in run["benchmarks"]
        ),
    )


def run_jsonl(run: Run) -> str:
    """Return the run as the text of a file of verdicts, with metadata in the first line."""
    about = {"format": 1, "accelerator": run.hardware.partition("-")[0], **run.about}
    lines = [{"run": about}, *map(dict, run.tests)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def badge(run: Run) -> str:
    """Return a badge as JSON for the endpoint of shields.io."""
    counts = Counter(run.verdicts.values())
    parts = [f"{counts[verdict]} {verdict}" for verdict in _BADGE_ORDER if counts[verdict]]
    worst = min(counts, key=VERDICTS.index, default="not-run")
    return json.dumps(
        {
            "schemaVersion": 1,
            "label": "torch.nn.parallel clauses",
            "message": ", ".join(parts),
            "color": _COLOUR[worst],
        }
    )


def _format_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(map(_escape_formula, head))
    writer.writerows([_escape_formula(cell) for cell in row] for row in rows)
    return file.getvalue()


def _escape_formula(cell: object) -> object:
    """Put a quote before a text that a spreadsheet would evaluate as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
