"""The page of published benchmarks: a table for each report, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import compare, floors
from bench.ratios import LEGEND
from reports.publishing.benchmark_reports import BenchmarkReport
from reports.publishing.speed import MEMORY, Row, rows
from spec_tests.site.markdown import escape, format_table

__all__ = ["format_page"]

_HEAD = f"""\
# Benchmarks

{LEGEND} A floor is the least allowed ratio: `tox -e weekly -- ratios` fails below it. There is a
number for each run: the median time in ms, or the peak memory in MiB.

`python -m reports build` generates this page.
"""
#: The libraries that come first in the columns.
_FIRST = ("reference", "impl")


def format_page(benches: Sequence[BenchmarkReport]) -> str:
    """Return the page with a section for each report."""
    return "\n".join([_HEAD, *map(_format_section, benches)])


def _format_section(bench: BenchmarkReport) -> str:
    date = escape(bench.data["runs"][-1]["datetime"][:10])
    found = floors.find(floors.load(compare.FLOORS), bench.data["machine"])
    table = _format_table(rows(bench.data, found))
    return f"## {escape(_title_of(bench))}\n\n{date}. {_describe(bench.data)}\n\n{table}\n"


def _title_of(bench: BenchmarkReport) -> str:
    """Return target, release of PyTorch and machine of a report."""
    release = str(bench.data["machine"]["torch"]).partition("+")[0]
    return f"{bench.about['target']}, torch {release}, {bench.about['hardware']}"


def _describe(data: Mapping[str, Any]) -> str:
    """Return a sentence about the machine and the runs."""
    machine = data["machine"]
    return escape(
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['devices'])}; "
        f"torch {machine['torch']}, Python {machine['python_version']}; "
        f"{machine.get('threads', 'unknown')} intra-op thread(s); {len(data['runs'])} run(s)."
    )


def _format_table(found: Sequence[Row]) -> str:
    """Return a table with a column for each library."""
    names = dict.fromkeys([*_FIRST, *(name for row in found for name in row.measured)])
    header = ["row", *names, "reference / impl", "quartiles", "floor"]
    return "\n".join(format_table(header, [_format_row(row, list(names)) for row in found]))


def _format_row(row: Row, names: Sequence[str]) -> Sequence[str]:
    factor = 1 / 2**20 if row.group.endswith(MEMORY) else 1000
    measured = (row.measured.get(name, ()) for name in names)
    cells = [", ".join(f"{factor * each:.3g}" for each in numbers) or "-" for numbers in measured]
    if not row.ratios:
        return [row.group, *cells, "-", "-", "-"]
    low, high = min(each.low for each in row.ratios), max(each.high for each in row.ratios)
    values = ", ".join(f"{each.value:.2f}" for each in row.ratios)
    floor = row.ratios[0].floor
    return [
        row.group,
        *cells,
        values,
        f"{low:.2f} to {high:.2f}",
        "-" if floor is None else f"{floor}",
    ]
