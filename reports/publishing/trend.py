"""The ratios of published benchmarks over commits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from reports.publishing.benchmark_reports import BenchmarkReport
from reports.publishing.speed import rows

__all__ = ["Trend", "TrendPoint", "summarize", "trends"]


@dataclass(frozen=True)
class TrendPoint:
    """The ratio of a row at one commit.

    Args:
        place: The number of the report, counted from 0, the oldest.
        commit: The first characters of the commit.
        value: The median of the ratios of the report's runs.
        low: The smallest ratio of the runs.
        high: The largest ratio of the runs.
    """

    place: int
    commit: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """The ratios of one row.

    Args:
        row: The name of the row.
        series: For each processor: the ratios measured on it, oldest first.
    """

    row: str
    series: Mapping[str, Sequence[TrendPoint]]


def summarize(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the date, the commit and the processor of a report, and the ratios of each row.

    Args:
        data: The runs, as `benchmark_files.combine` returns them.
    """
    last = data["runs"][-1]
    return {
        "date": last["datetime"][:10],
        "commit": last["commit"],
        "processor": data["machine"]["cpu"],
        "ratios": {row.group: [round(each, 3) for each in row.each] for row in rows(data, {})},
    }


def trends(bench: BenchmarkReport) -> list[Trend]:
    """Return the trend of each row that a report and an earlier report of its name have."""
    reports = [*bench.history, summarize(bench.data)]
    found = [Trend(row, _find_series(row, reports)) for row in reports[-1]["ratios"]]
    return [each for each in found if sum(map(len, each.series.values())) > 1]


def _find_series(row: str, reports: Sequence[Mapping[str, Any]]) -> dict[str, list[TrendPoint]]:
    series: dict[str, list[TrendPoint]] = {}
    for place, report in enumerate(reports):
        if values := report["ratios"].get(row):
            point = TrendPoint(
                place, report["commit"][:7], median(values), min(values), max(values)
            )
            series.setdefault(report["processor"], []).append(point)
    return series
