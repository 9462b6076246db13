"""Reference time over impl time, group by group."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LEGEND", "Ratio", "ratios"]

#: The library whose time is subtracted from both sides.
MODULE = "module"
LEGEND = (
    "A ratio is the reference's time over impl's, medians of one run: 2 means half the time. "
    "If the plain module was timed too, its time is subtracted from both sides, so that the ratio "
    "compares overheads. The quartiles are those that favour the reference and those that favour "
    "impl. `(bytes)` is peak memory, not time."
)


@dataclass(frozen=True)
class Ratio:
    """One comparison.

    Args:
        group: The benchmarks compared.
        value: Reference over impl; times less the plain module's where the group has it.
        low: The same with the quartiles that favour the reference.
        high: The same with the quartiles that favour impl.
        floor: The least value that passes; None where none is set.
    """

    group: str
    value: float
    low: float
    high: float
    floor: float | None

    @property
    def passes(self) -> bool:
        """Whether the quartiles that favour impl reach the floor; True without a floor."""
        return self.floor is None or self.high >= self.floor


def ratios(run: Mapping[str, Any], floors: Mapping[str, float]) -> Iterator[Ratio]:
    """Yield the `Ratio` of the times of each group, and that of its peak memory if it has one.

    Args:
        run: What pytest-benchmark saved.
        floors: The least ratio by group.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for each in run["benchmarks"]:
        groups.setdefault(each["group"], {})[each["extra_info"]["library"]] = each
    for group, members in groups.items():
        if {"reference", "impl"} <= members.keys():
            yield _of_times(group, members, floors.get(group))
            yield from _of_memory(group, members, floors)


def _of_times(group: str, members: dict[str, dict[str, Any]], floor: float | None) -> Ratio:
    stats = {name: member["stats"] for name, member in members.items()}
    base = stats[MODULE]["median"] if MODULE in stats else 0.0

    def ratio(reference: str, impl: str) -> float:
        own = stats["impl"][impl] - base
        # As fast as the plain module: there is no overhead left to divide by.
        return float((stats["reference"][reference] - base) / own) if own > 0 else math.inf

    return Ratio(group, ratio("median", "median"), ratio("q1", "q3"), ratio("q3", "q1"), floor)


def _of_memory(
    group: str, members: dict[str, dict[str, Any]], floors: Mapping[str, float]
) -> Iterator[Ratio]:
    peaks = {name: member["extra_info"].get("peak_bytes") for name, member in members.items()}
    if peaks["reference"] and peaks["impl"]:
        value = peaks["reference"] / peaks["impl"]
        name = f"{group} (bytes)"
        yield Ratio(name, value, value, value, floors.get(name))
