"""Sample runs of the benchmarks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_QUARTILES = ("q1", "median", "q3")


def make_benchmark_run(
    groups: Mapping[str, Mapping[str, float]] = MappingProxyType(
        {"work": {"reference": 2.0, "impl": 1.0}}
    ),
    **machine: Any,
) -> dict[str, Any]:
    """Return a run of benchmarks as ``pytest --benchmark-json`` writes it.

    Args:
        groups: The seconds for each benchmark group and library.
        machine: Fields of ``machine_info`` that are added or replace the default fields.
    """
    info = {"torch": "2", "python_version": "3", "devices": ["sim:0"], "threads": 1, **machine}
    return {
        "datetime": "2026-01-02T03:04:05",
        "commit_info": {"id": "abc"},
        "machine_info": {"cpu": {"brand_raw": "Fast", "count": 2}, "node": "private", **info},
        "benchmarks": [
            _benchmark_result(group, library, libraries)
            for group, libraries in groups.items()
            for library in libraries
        ],
    }


def _benchmark_result(group: str, library: str, seconds: Mapping[str, float]) -> dict[str, Any]:
    median = seconds[library]
    extra_info: dict[str, Any] = {"library": library}
    if library == "impl" and "reference" in seconds:
        ratio = seconds["reference"] / median
        extra_info |= {"pairs": dict.fromkeys(_QUARTILES, ratio)}
    return {
        "group": group,
        "fullname": f"bench_{group}[{library}]",
        "extra_info": extra_info,
        "options": {"timer": "perf_counter"},
        "stats": {
            **dict.fromkeys(("min", *_QUARTILES, "mean"), median),
            **{"rounds": 3, "data": [median] * 3},
        },
    }
