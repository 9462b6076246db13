"""Compute ratios, times by size and peak memory of published benchmarks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.ratios import Ratio, ratios

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

#: The machine and the runs of a report, as `benchmark_files.combine` returns them.
Data = Mapping[str, Any]
#: Quartiles of the times of one benchmark in one run.
Stats = Mapping[str, float]
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
    """The ratios of one group of benchmarks in all runs of a report.

    Args:
        group: The name of the group.
        value: The median of the ratios of all runs.
        low: The least lower quartile of all runs.
        high: The greatest upper quartile of all runs.
        floor: The least allowed ratio; None if the group has none.
        each: The ratio of each run.
        times: For each library: the median time in seconds of each run. Empty for memory.
    """

    group: str
    value: float
    low: float
    high: float
    floor: float | None
    each: Sequence[float]
    times: Mapping[str, Sequence[float]]


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


def variants(data: Data) -> list[Variants]:
    """Return the groups in which more than the two libraries and the plain module were timed."""
    peak_of = {peak.group: peak.peaks for peak in peaks(data)}
    return [
        Variants(group, times, peak_of.get(group, {}))
        for group, times in _times_by_group(data).items()
        if times.keys() - {"reference", "impl", "module"}
    ]


def rows(data: Data, floors: Mapping[str, float]) -> list[Row]:
    """Return the ratios of a report, in the order of the benchmarks."""
    found: dict[str, list[Ratio]] = {}
    for run in data["runs"]:
        for ratio in ratios(run, floors):
            found.setdefault(ratio.group, []).append(ratio)
    stats = _stats_by_group(data)
    return [_make_row(each, stats.get(group, {})) for group, each in found.items()]


def _make_row(found: Sequence[Ratio], stats: Mapping[str, Sequence[Stats]]) -> Row:
    return Row(
        found[0].group,
        median(each.value for each in found),
        min(each.low for each in found),
        max(each.high for each in found),
        found[0].floor,
        tuple(each.value for each in found),
        {library: [each["median"] for each in runs] for library, runs in stats.items()},
    )


def _stats_by_group(data: Data) -> dict[str, dict[str, list[Stats]]]:
    """Return the statistics of each run for each group and library, in seconds."""
    found: dict[str, dict[str, list[Stats]]] = {}
    for each in _all_benchmarks(data):
        libraries = found.setdefault(each["group"], {})
        libraries.setdefault(each["extra_info"]["library"], []).append(each["stats"])
    return found


def _times_by_group(data: Data) -> dict[str, dict[str, Point]]:
    """Return the times of each group and library in seconds."""
    return {
        group: {library: _make_point(stats) for library, stats in libraries.items()}
        for group, libraries in _stats_by_group(data).items()
    }


def _all_benchmarks(data: Data) -> Iterator[Mapping[str, Any]]:
    for run in data["runs"]:
        yield from run["benchmarks"]


def _make_point(stats: Sequence[Stats]) -> Point:
    low, high = min(each["q1"] for each in stats), max(each["q3"] for each in stats)
    return Point(0, low, median(each["median"] for each in stats), high)


def times_by_size(data: Data) -> list[TimesBySize]:
    """Return the times by size, one result for all groups whose names differ only in the size."""
    found: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for group, libraries in _times_by_group(data).items():
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


def peaks(data: Data) -> list[Peak]:
    """Return, for each group and library, the median of the runs' peak memory."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in _all_benchmarks(data):
        if "peak_bytes" in each["extra_info"]:
            libraries = found.setdefault(each["group"], {})
            peak = each["extra_info"]["peak_bytes"]
            libraries.setdefault(each["extra_info"]["library"], []).append(peak)
    return [
        Peak(group, {library: median(each) for library, each in libraries.items()})
        for group, libraries in found.items()
    ]
