"""Read saved runs of the benchmarks, and summarize them for a report."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.harness.input_files import shorten
from spec_tests.site import charts, saved_runs
from spec_tests.site.markdown import escape
from spec_tests.site.ratios import LEGEND, Ratio, ratios
from spec_tests.site.runs import BenchmarkReport
from spec_tests.site.speed import Variants, variants

__all__ = ["draw_variants", "format_summary", "read_runs"]

#: Statistics of a benchmark that are published.
_STATS = ("min", "q1", "median", "q3", "rounds")
#: Fields of ``machine_info`` that must be equal in all runs of a report.
_MACHINE_KEYS = ("torch", "python_version", "devices", "threads", "gpu", "cuda")
#: Names of variants in the table.
_VARIANT_NAMES = {"reference": "torch.nn.parallel"}
#: The first two lines of the summary's table.
_TABLE_HEAD = (
    "| row | reference, ms | impl, ms | reference / impl | quartiles | floor |",
    "|---|---|---|---|---|---|",
)


def read_runs(paths: Sequence[Path]) -> dict[str, Any]:
    """Return one or more runs of one machine, without single samples.

    Args:
        paths: Files written by ``pytest --benchmark-json``.

    Returns:
        A dict with ``machine`` (processor, cores, versions and devices) and ``runs``. Each run has
        ``datetime``, ``commit``, ``dirty`` and ``benchmarks``. Each benchmark has ``group``,
        ``fullname``, ``extra_info`` and ``stats``: minimum, quartiles and median in seconds, and
        the number of rounds.

    Raises:
        ValueError: A file was not written by pytest-benchmark, or its machine or benchmarks differ
            from those of the first file.
    """
    runs = [saved_runs.load(path) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if _machine_of(run) != _machine_of(runs[0]):
            raise ValueError(f"{path} and {paths[0]} come from different machines")
        if missing := _benchmark_names(run) ^ _benchmark_names(runs[0]):
            raise ValueError(f"only one of {path} and {paths[0]} has {shorten(min(missing))}")
        if _rows_of(run) != _rows_of(runs[0]):
            raise ValueError(f"{path} and {paths[0]} have different ratios")
    return {"machine": _machine_of(runs[0]), "runs": [_without_samples(run) for run in runs]}


def _benchmark_names(run: dict[str, Any]) -> set[str]:
    return {each["fullname"] for each in run["benchmarks"]}


def _rows_of(run: dict[str, Any]) -> list[str]:
    return [ratio.group for ratio in ratios(run, {})]


def _machine_of(run: dict[str, Any]) -> dict[str, Any]:
    info = run["machine_info"]
    cpu = {"cpu": info["cpu"].get("brand_raw", ""), "cores": info["cpu"].get("count")}
    return cpu | {key: info[key] for key in _MACHINE_KEYS if key in info}


def _without_samples(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "datetime": run["datetime"],
        "commit": run["commit_info"]["id"],
        "dirty": run["commit_info"].get("dirty", False),
        "benchmarks": [_select_fields(benchmark) for benchmark in run["benchmarks"]],
    }


def _select_fields(benchmark: dict[str, Any]) -> dict[str, Any]:
    kept = {key: benchmark[key] for key in ("group", "fullname", "extra_info")}
    return {**kept, "stats": {key: benchmark["stats"][key] for key in _STATS}}


def format_summary(data: dict[str, Any], floors: Mapping[str, float]) -> str:
    """Return a Markdown table of the ratios and medians of all runs.

    Args:
        data: The runs, as :func:`read_runs` returns them.
        floors: For each row: the required minimum of its ratio.
    """
    machine, runs = data["machine"], data["runs"]
    found = [list(ratios(run, floors)) for run in runs]
    about = (
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['devices'])}; "
        f"torch {machine['torch']}, Python {machine['python_version']}; "
        f"{machine.get('threads', 'unknown')} intra-op thread(s); {len(runs)} run(s)."
    )
    lines = [
        escape(about),
        "",
        LEGEND,
        "",
        *_TABLE_HEAD,
        *(_format_row(row_ratios, runs) for row_ratios in zip(*found, strict=True)),
    ]
    if groups := variants(BenchmarkReport("", {}, data)):
        lines += ["", *_format_variants(groups)]
    return "\n".join(lines)


def draw_variants(data: dict[str, Any]) -> str:
    """Return the chart of the variants as SVG; an empty text if only two libraries were timed."""
    groups = variants(BenchmarkReport("", {}, data))
    if not groups:
        return ""
    chart = charts.variant_chart(groups, "variants", charts.FILE_COLOURS)
    return chart.replace("<svg ", '<svg style="background: white" ', 1)


def _format_variants(groups: Sequence[Variants]) -> Iterator[str]:
    """Yield the lines of a table with the time and the peak memory of each variant."""
    names = list(dict.fromkeys(name for each in groups for name in each.times))
    yield "Median time in ms over all runs, with quartiles. In brackets: peak memory in MiB."
    yield ""
    yield "| | " + " | ".join(escape(_VARIANT_NAMES.get(name, name)) for name in names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for each in groups:
        yield (
            "| "
            + " | ".join([escape(each.group), *(_format_variant(each, name) for name in names)])
            + " |"
        )


def _format_variant(group: Variants, name: str) -> str:
    if name not in group.times:
        return "-"
    point = group.times[name]
    times = f"{1000 * point.value:.3g} ({1000 * point.low:.3g} to {1000 * point.high:.3g})"
    return f"{times} [{group.peaks[name] / 2**20:.1f}]" if name in group.peaks else times


def _format_row(row: Sequence[Ratio], runs: Sequence[dict[str, Any]]) -> str:
    """Return the table's row for one benchmark; ``row`` has its ratio in each run."""
    group, floor = row[0].group, row[0].floor
    times = (_format_medians(group, library, runs) for library in ("reference", "impl"))
    values = ", ".join(f"{each.value:.2f}" for each in row)
    low, high = min(each.low for each in row), max(each.high for each in row)
    cells = (
        escape(group),
        *times,
        values,
        f"{low:.2f} to {high:.2f}",
        "-" if floor is None else f"{floor}",
    )
    return "| " + " | ".join(cells) + " |"


def _format_medians(group: str, library: str, runs: Sequence[dict[str, Any]]) -> str:
    """Return the median time of each run in milliseconds; "-" for a row that compares memory."""
    medians = [
        each["stats"]["median"] * 1000
        for run in runs
        for each in run["benchmarks"]
        if each["group"] == group and each["extra_info"]["library"] == library
    ]
    return ", ".join(f"{median:.3g}" for median in medians) or "-"
