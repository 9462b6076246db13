"""The ratios, times and peak memory of published benchmarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.ratios import Ratio, ratios

__all__ = ["MEMORY", "Row", "rows"]

#: The machine and the runs of a report, as `benchmark_files.combine` returns them.
Data = Mapping[str, Any]
#: The end of the names of rows that compare peak memory.
MEMORY = " (bytes)"


@dataclass(frozen=True)
class Row:
    """One group of benchmarks in all runs of a report.

    Args:
        group: The name of the group; it ends with ``MEMORY`` if the row compares peak memory.
        measured: For each library: the median time in seconds, or the peak memory in bytes, of
            each run.
        ratios: The ratio of each run; empty if the reference or impl was not measured.
    """

    group: str
    measured: Mapping[str, Sequence[float]]
    ratios: Sequence[Ratio] = field(default=())


def rows(data: Data, floors: Mapping[str, float]) -> list[Row]:
    """Return the rows of a report, in the order of the benchmarks."""
    found: dict[str, list[Ratio]] = {}
    for run in data["runs"]:
        for ratio in ratios(run, floors):
            found.setdefault(ratio.group, []).append(ratio)
    measured: dict[str, dict[str, list[float]]] = {}
    for group, library, value in _measurements(data):
        measured.setdefault(group, {}).setdefault(library, []).append(value)
    return [Row(group, each, found.get(group, ())) for group, each in measured.items()]


def _measurements(data: Data) -> Iterator[tuple[str, str, float]]:
    """Yield the group, the library and the number of each measurement."""
    for run in data["runs"]:
        for each in run["benchmarks"]:
            group, info = each["group"], each["extra_info"]
            yield group, info["library"], each["stats"]["median"]
            if "peak_bytes" in info:
                yield f"{group}{MEMORY}", info["library"], info["peak_bytes"]
