"""Compute ratios, times by size and peak memory of published benchmarks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from spec_tests.site.ratios import Ratio, ratios
from spec_tests.site.runs import BenchmarkReport

__all__ = [
    "Peak",
    "Point",
    "Row",
    "TimesBySize",
    "Variants",
    "peaks",
    "rows",
    "times_by_size",
    "variants",
]

#: Matches the size in the name of a group of benchmarks: ``blocks=100``.
_SIZE = re.compile(r"\b(modules|blocks|devices|width|pairs)=(\d{1,9})\b")
#: For each kind of size: its unit on the axis of a chart.
_UNIT = {
    "modules": "modules",
    "blocks": "blocks of four modules",
    "devices": "devices",
    "width": "numbers in a row",
    "pairs": "pairs of tensors in a list",
}


@dataclass(frozen=True)
class Row:
    """The results of one group of benchmarks in all runs of a report.

    Args:
        group: The name of the group.
        value: The median of the ratios of all runs.
        low: The least lower quartile of all runs.
        high: The greatest upper quartile of all runs.
        floor: The least allowed ratio; None if the group has none.
        each: The ratio of each run.
        times: For each library: the median of the runs' medians in seconds. Empty for memory.
    """

    group: str
    value: float
    low: float
    high: float
    floor: float | None
    each: Sequence[float]
    times: Mapping[str, float]


@dataclass(frozen=True)
class Point:
    """The median time at one size, with quartiles, in seconds."""

    size: int
    low: float
    value: float
    high: float


@dataclass(frozen=True)
class TimesBySize:
    """The times of a benchmark at several sizes, for each library.

    Libraries that were timed at one size only are left out.
    """

    name: str
    unit: str
    points: Mapping[str, Sequence[Point]]


@dataclass(frozen=True)
class Variants:
    """The times and the peak memory of several variants of one call, such as a training step.

    Args:
        group: The name of the group of benchmarks.
        times: For each variant: its median time with quartiles, in seconds.
        peaks: For each variant whose peak memory was measured: the peak memory in bytes.
    """

    group: str
    times: Mapping[str, Point]
    peaks: Mapping[str, float]


@dataclass(frozen=True)
class Peak:
    """Peak memory in bytes of each library in one group of benchmarks."""

    group: str
    peaks: Mapping[str, float]


def variants(bench: BenchmarkReport) -> list[Variants]:
    """Return the groups in which more than the two libraries and the plain module were timed."""
    peak_of = {peak.group: peak.peaks for peak in peaks(bench)}
    return [
        Variants(group, times, peak_of.get(group, {}))
        for group, times in _times_by_group(bench).items()
        if times.keys() - {"reference", "impl", "module"}
    ]


def rows(bench: BenchmarkReport, floors: Mapping[str, float]) -> list[Row]:
    """Return the ratios of a report, in the order of the benchmarks."""
    found: dict[str, list[Ratio]] = {}
    for run in bench.data["runs"]:
        for ratio in ratios(run, floors):
            found.setdefault(ratio.group, []).append(ratio)
    times = _times_by_group(bench)
    return [_make_row(each, times.get(group, {})) for group, each in found.items()]


def _make_row(ratios_of_group: Sequence[Ratio], times: Mapping[str, Point]) -> Row:
    return Row(
        ratios_of_group[0].group,
        median(each.value for each in ratios_of_group),
        min(each.low for each in ratios_of_group),
        max(each.high for each in ratios_of_group),
        ratios_of_group[0].floor,
        tuple(each.value for each in ratios_of_group),
        {library: point.value for library, point in times.items()},
    )


def _times_by_group(bench: BenchmarkReport) -> dict[str, dict[str, Point]]:
    """Return the times of each group and library in seconds."""
    found: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for each in _all_benchmarks(bench):
        libraries = found.setdefault(each["group"], {})
        libraries.setdefault(each["extra_info"]["library"], []).append(each["stats"])
    return {
        group: {library: _make_point(stats) for library, stats in libraries.items()}
        for group, libraries in found.items()
    }


def _all_benchmarks(bench: BenchmarkReport) -> Iterator[Mapping[str, Any]]:
    for run in bench.data["runs"]:
        yield from run["benchmarks"]


def _make_point(stats: Sequence[Mapping[str, float]], size: int = 0) -> Point:
    low, high = min(each["q1"] for each in stats), max(each["q3"] for each in stats)
    return Point(size, low, median(each["median"] for each in stats), high)


def times_by_size(bench: BenchmarkReport) -> list[TimesBySize]:
    """Return the times by size, one result for all groups whose names differ only in the size."""
    found: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for group, libraries in _times_by_group(bench).items():
        for match in _SIZE.finditer(group):
            name = " ".join((group[: match.start()] + group[match.end() :]).split())
            points = found.setdefault((name, match[1]), {})
            for library, point in libraries.items():
                sized = Point(int(match[2]), point.low, point.value, point.high)
                points.setdefault(library, []).append(sized)
    return [
        _make_times_by_size(name, unit, points)
        for (name, unit), points in found.items()
        if _has_several_sizes(points)
    ]


def _has_several_sizes(points: Mapping[str, Sequence[Point]]) -> bool:
    return any(len({point.size for point in each}) > 1 for each in points.values())


def _make_times_by_size(
    name: str, unit: str, points: Mapping[str, Sequence[Point]]
) -> TimesBySize:
    ordered = {key: sorted(each, key=lambda point: point.size) for key, each in points.items()}
    several = {key: each for key, each in ordered.items() if len(each) > 1}
    return TimesBySize(name, _UNIT[unit], several)


def peaks(bench: BenchmarkReport) -> list[Peak]:
    """Return, for each group and library, the median of the runs' peak memory."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in _all_benchmarks(bench):
        if "peak_bytes" in each["extra_info"]:
            libraries = found.setdefault(each["group"], {})
            peak = each["extra_info"]["peak_bytes"]
            libraries.setdefault(each["extra_info"]["library"], []).append(peak)
    return [
        Peak(group, {library: median(each) for library, each in libraries.items()})
        for group, libraries in found.items()
    ]
