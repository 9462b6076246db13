"""The page of published benchmarks: tables as Markdown, and charts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import markupsafe

from bench import compare, floors
from bench.ratios import LEGEND
from reports.publishing import charts, speed
from reports.publishing.benchmark_reports import BenchmarkReport
from reports.publishing.speed import Peak, Row, TimesBySize, Variants, variants
from spec_tests.site.markdown import escape, format_table

__all__ = [
    "draw_charts",
    "draw_variants",
    "find_floors",
    "format_page",
    "format_summary",
    "title_of",
]

_HEAD = f"""\
# Benchmarks

{LEGEND} A floor is the least allowed ratio; a ratio below its floor fails the build.

`python -m reports build` generates this page.
"""
#: Names of variants in the table.
_VARIANT_NAMES = {"reference": "torch.nn.parallel"}
_COLUMNS = ("row", "reference, ms", "impl, ms", "reference / impl", "quartiles", "floor")


def format_page(benches: Sequence[BenchmarkReport]) -> str:
    """Return the page with a section for each report."""
    return "\n".join([_HEAD, *map(_format_section, benches)])


def _format_section(bench: BenchmarkReport) -> str:
    date = escape(bench.data["runs"][-1]["datetime"][:10])
    summary = format_summary(bench.data, find_floors(bench))
    return f"## {escape(title_of(bench))}\n\n{date}. {summary}\n"


def title_of(bench: BenchmarkReport) -> str:
    """Return target, release of PyTorch and machine of a report."""
    release = str(bench.data["machine"]["torch"]).partition("+")[0]
    return f"{bench.about['target']}, torch {release}, {bench.about['hardware']}"


def find_floors(bench: BenchmarkReport) -> Mapping[str, float]:
    """Return the floors of the machine of a report by row."""
    return floors.find(floors.load(compare.FLOORS), bench.data["machine"])


def format_summary(data: Mapping[str, Any], floors: Mapping[str, float]) -> str:
    """Return a sentence about the machine, and tables of the ratios and medians of all runs.

    Args:
        data: The runs, as `benchmark_files.combine` returns them.
        floors: For each row: the required minimum of its ratio.
    """
    machine = data["machine"]
    about = (
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['devices'])}; "
        f"torch {machine['torch']}, Python {machine['python_version']}; "
        f"{machine.get('threads', 'unknown')} intra-op thread(s); {len(data['runs'])} run(s)."
    )
    cells = [_format_row(row) for row in speed.rows(data, floors)]
    lines = [escape(about), "", *format_table(_COLUMNS, cells)]
    if groups := variants(data):
        lines += ["", *_format_variants(groups)]
    return "\n".join(lines)


def draw_charts(bench: BenchmarkReport, floors: Mapping[str, float]) -> str:
    """Return the charts of a report as HTML. The captions have the numbers that no table has."""
    name, groups = bench.name, variants(bench.data)
    found = [
        (
            "Ratios with quartiles and floors",
            charts.ratio_chart(speed.rows(bench.data, floors), name),
        )
    ]
    if groups:
        found.append(("Ratio of each variant", charts.variant_chart(groups, name)))
    found += [
        (_caption_sizes(each), charts.size_chart(each, name))
        for each in speed.times_by_size(bench.data)
    ]
    if not groups:
        peaks = speed.peaks(bench.data)
        found += [(_caption_peaks(each), charts.memory_chart(each, name)) for each in peaks]
    figures = (
        f"<figure>{chart}<figcaption>{markupsafe.escape(caption)}</figcaption></figure>"
        for caption, chart in found
    )
    return "\n".join(['<div class="results charts">', *figures, "</div>"])


def _caption_sizes(times: TimesBySize) -> str:
    parts = [
        f"{library} {', '.join(f'{each.size}: {1000 * each.value:.3g}' for each in points)}"
        for library, points in times.points.items()
    ]
    return f"{times.name}: time in ms at each size ({times.unit}). {'; '.join(parts)}."


def _caption_peaks(peak: Peak) -> str:
    parts = [f"{library} {size / 2**20:.1f} MiB" for library, size in peak.peaks.items()]
    return f"{peak.group}: peak memory. {', '.join(parts)}."


def draw_variants(data: Mapping[str, Any]) -> str:
    """Return the chart of the variants as an SVG file with a white background."""
    chart = charts.variant_chart(variants(data), "variants", charts.FILE_COLOURS)
    return chart.replace("<svg ", '<svg style="background: white" ', 1)


def _format_variants(groups: Sequence[Variants]) -> Iterator[str]:
    """Yield the lines of a table with the time and the peak memory of each variant."""
    names = list(dict.fromkeys(name for each in groups for name in each.times))
    yield "Median time in ms over all runs, with quartiles. In brackets: peak memory in MiB."
    yield ""
    yield from format_table(
        ["", *(_VARIANT_NAMES.get(name, name) for name in names)],
        [[each.group, *(_format_variant(each, name) for name in names)] for each in groups],
    )


def _format_variant(group: Variants, name: str) -> str:
    if name not in group.times:
        return "-"
    point = group.times[name]
    times = f"{1000 * point.value:.3g} ({1000 * point.low:.3g} to {1000 * point.high:.3g})"
    return f"{times} [{group.peaks[name] / 2**20:.1f}]" if name in group.peaks else times


def _format_row(row: Row) -> Sequence[str]:
    """Return the cells for one benchmark, with a number for each run."""
    values = ", ".join(f"{each:.2f}" for each in row.each)
    times = (_format_times(row.times.get(library, ())) for library in ("reference", "impl"))
    floor = "-" if row.floor is None else f"{row.floor}"
    return row.group, *times, values, f"{row.low:.2f} to {row.high:.2f}", floor


def _format_times(seconds: Sequence[float]) -> str:
    """Return times in milliseconds; "-" for a row that compares memory."""
    return ", ".join(f"{1000 * each:.3g}" for each in seconds) or "-"
