"""Computes the ratio of reference to target (time and memory) for each group of benchmarks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LEGEND = (
    "A ratio is the time of the reference divided by the time of impl; 2 means that impl takes "
    "half the time. Both are called in turn. The ratio of a run is the median over the turns. "
    "Rows with `(bytes)` compare peak memory, not time."
)


@dataclass(frozen=True)
class Ratio:
    """The ratio of reference to target in one group of benchmarks.

    Args:
        group: The name of the group of benchmarks.
        value: The median ratio: reference divided by target.
        low: The lower quartile of the ratios.
        high: The upper quartile of the ratios.
    """

    group: str
    value: float
    low: float
    high: float


def ratios(run: Mapping[str, Any]) -> Iterator[Ratio]:
    """Yield the `Ratio` of the times of each group, and of its peak memory if measured.

    Args:
        run: The data that pytest-benchmark saved.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for each in run["benchmarks"]:
        groups.setdefault(each["group"], {})[each["extra_info"]["library"]] = each
    for group, members in groups.items():
        for target in members.values():
            pairs = target["extra_info"].get("pairs")
            if pairs is not None and "reference" in members:
                yield Ratio(group, pairs["median"], pairs["q1"], pairs["q3"])
                yield from _memory_ratio(group, members["reference"], target)


def _memory_ratio(
    group: str, reference: dict[str, Any], target: dict[str, Any]
) -> Iterator[Ratio]:
    peak, other = (each["extra_info"].get("peak_bytes") for each in (reference, target))
    if peak and other:
        value = peak / other
        yield Ratio(f"{group} (bytes)", value, value, value)
