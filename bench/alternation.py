"""Time the calls of several libraries alternately, so that the times of one turn can be compared.

A machine may be slow for a minute. If all calls of one library were timed before those of another,
such a minute would change the ratio of the libraries. If the calls alternate, it makes all
times of a turn longer, and their ratio stays the same.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any

from pytest_benchmark.stats import Stats

_MIN_TURNS = 5
#: The library whose time is that of the module alone.
_ALONE = "one device"


def time_alternately(
    benchmark: Any,
    target: str,
    calls: Mapping[str, Callable[[], object]],
    seconds: float,
    info: Mapping[str, Mapping[str, Any]],
) -> None:
    """Time each call once in every turn. A time includes the time to free the result.

    pytest-benchmark stores the times of the target. ``benchmark.extra_info`` gets the times of the
    other libraries, for `add_other_libraries`, the quartiles of the turns' ratios (``pairs``), and
    the efficiency of each library, if a call is that of the module alone.

    Args:
        benchmark: The fixture of pytest-benchmark.
        target: The library that is compared with the others.
        calls: For each library: the call to time. ``target`` is one of the libraries.
        seconds: The time for all turns. At least five turns are made.
        info: For each library: values to save besides its times, such as ``peak_bytes``.
    """
    others = {library: call for library, call in calls.items() if library != target}
    times: dict[str, list[float]] = {library: [] for library in others}

    def time_others() -> None:
        for library, call in others.items():
            times[library].append(_time(call))

    def call_target() -> None:
        calls[target]()

    for call in calls.values():
        call()  # The first call of a library may be slower than the next ones.
    turn = sum(_time(call) for call in calls.values())
    benchmark.pedantic(call_target, setup=time_others, rounds=max(_MIN_TURNS, int(seconds / turn)))
    if not benchmark.disabled:
        benchmark.extra_info.update(_describe(target, info))
        benchmark.extra_info["others"] = [
            {"times": times[library], "extra_info": _describe(library, info)} for library in times
        ]
        if "reference" in times:
            pairs = _compare(times["reference"], benchmark.stats.stats.data)
            benchmark.extra_info["pairs"] = pairs
        if _ALONE in times:
            every = {**times, target: benchmark.stats.stats.data}
            replicas = len(benchmark.extra_info["devices"])
            benchmark.extra_info["efficiency"] = _efficiencies(every, replicas)


def _describe(library: str, info: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {"library": library, **info.get(library, {})}


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _compare(reference: list[float], target: list[float]) -> dict[str, float]:
    """Return the quartiles of the turns' ratios: reference divided by target."""
    ratios = [left / right for left, right in zip(reference, target, strict=True)]
    return dict(zip(("q1", "median", "q3"), quantiles(ratios, n=4), strict=True))


def _efficiencies(times: Mapping[str, list[float]], replicas: int) -> dict[str, float]:
    """Return the efficiency of each library.

    It is the time of the module alone, divided by the number of replicas and by the time of the
    library. 1 is the best; if all replicas are on one GPU, the best is 1 divided by their number.
    """
    return {
        library: median(a / b for a, b in zip(times[_ALONE], each, strict=True)) / replicas
        for library, each in times.items()
        if library != _ALONE
    }


def add_other_libraries(run: dict[str, Any]) -> None:
    """Add an entry for each library that was timed in turn with the target.

    Args:
        run: The run as pytest-benchmark is about to save it. It is changed in place.
    """
    run["benchmarks"] = [
        entry
        for each in run["benchmarks"]
        for others in [each["extra_info"].pop("others", [])]
        for entry in [*(_make_entry(each, **other) for other in others), each]
    ]


def _make_entry(
    target: Mapping[str, Any], times: list[float], extra_info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the entry of another library; ``target`` is the entry of the target."""
    stats: Any = Stats()  # type: ignore[no-untyped-call] # pytest-benchmark has no types
    for seconds in times:
        stats.update(seconds)
    data = {"data": times} if "data" in target["stats"] else {}
    names = {key: f"{target[key]} ({extra_info['library']})" for key in ("name", "fullname")}
    shared = {"devices": target["extra_info"]["devices"]}
    return {
        **target,
        **names,
        "extra_info": {**shared, **extra_info},
        "stats": {**stats.as_dict(), "iterations": 1, **data},
    }
