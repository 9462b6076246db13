"""Computes the ratio of reference to impl (time and memory) for each group of benchmarks."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LEGEND", "Ratio", "ratios"]

#: The library name of the plain module. The time of the plain module is subtracted from the times
#: of reference and impl.
MODULE = "module"
LEGEND = (
    "A ratio is the median time of the reference divided by the median time of impl in one run; "
    "2 means that impl takes half the time. If the plain module was timed, too, its time is "
    "subtracted from both, so that the ratio compares overheads. The lower quartile favours the "
    "reference, the upper one favours impl. Rows with `(bytes)` compare peak memory, not time."
)


@dataclass(frozen=True)
class Ratio:
    """The ratio of reference to impl in one group of benchmarks.

    Args:
        group: The name of the group of benchmarks.
        value: Reference divided by impl. The time of the plain module, if timed, is subtracted
            from both.
        low: Lower quartile of the reference divided by upper quartile of impl.
        high: Upper quartile of the reference divided by lower quartile of impl.
        floor: The least allowed ratio; None if the group has none.
    """

    group: str
    value: float
    low: float
    high: float
    floor: float | None

    @property
    def passes(self) -> bool:
        """Whether ``high`` reaches the floor; True without a floor."""
        return self.floor is None or self.high >= self.floor


def ratios(run: Mapping[str, Any], floors: Mapping[str, float]) -> Iterator[Ratio]:
    """Yield the `Ratio` of the times of each group, and of its peak memory if measured.

    Args:
        run: The data that pytest-benchmark saved.
        floors: For each group: the least allowed ratio.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for each in run["benchmarks"]:
        groups.setdefault(each["group"], {})[each["extra_info"]["library"]] = each
    for group, members in groups.items():
        if {"reference", "impl"} <= members.keys():
            yield _time_ratio(group, members, floors.get(group))
            yield from _memory_ratio(group, members, floors)


def _time_ratio(group: str, by_library: dict[str, dict[str, Any]], floor: float | None) -> Ratio:
    stats = {name: benchmark["stats"] for name, benchmark in by_library.items()}
    base = stats[MODULE]["median"] if MODULE in stats else 0.0

    def ratio(reference_key: str, impl_key: str) -> float:
        overhead = stats["impl"][impl_key] - base
        # If impl takes no longer than the plain module, the ratio is infinite.
        return (
            float((stats["reference"][reference_key] - base) / overhead)
            if overhead > 0
            else math.inf
        )

    return Ratio(group, ratio("median", "median"), ratio("q1", "q3"), ratio("q3", "q1"), floor)


def _memory_ratio(
    group: str, by_library: dict[str, dict[str, Any]], floors: Mapping[str, float]
) -> Iterator[Ratio]:
    peaks = {
        name: benchmark["extra_info"].get("peak_bytes") for name, benchmark in by_library.items()
    }
    if peaks["reference"] and peaks["impl"]:
        value = peaks["reference"] / peaks["impl"]
        name = f"{group} (bytes)"
        yield Ratio(name, value, value, value, floors.get(name))
