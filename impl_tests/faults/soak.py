"""A soak test: many steps and concurrent calls, during which no resource may grow."""

import ctypes
import gc
import itertools
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from impl_tests.stress.sharing import build_net, create_tensor
from spec_tests.harness.environment.target import Target

from .callers import THREADS, Callers
from .soak_of_frozen_parameters import make_frozen_step
from .state import read_memory
from .table import format_table

__all__ = ["Slope", "fit_slope", "format_slopes", "run_soak"]

#: Seconds between two samples. Each sample runs a garbage collection.
_INTERVAL = 1.0
#: The fraction of the samples at the beginning that is ignored: caches fill, and worker threads
#: start.
_WARM_UP = 1 / 3
#: The slope of a growing resource exceeds this number of standard errors.
_ERRORS = 4
#: Resource -> the tolerated growth during the run, as a fraction of the mean. The default is 0.
_MIN_GROWTH = {"host memory (bytes)": 0.02, "objects": 0.002}
#: The beginning of the names of resources that are objects of one type.
_TYPE = "objects of "
#: The number of object types whose slopes are shown: those that grow most.
_SHOWN_TYPES = 8


class Slope(NamedTuple):
    """A straight line fitted to the amount of a resource in use.

    Args:
        slope: The growth for each 1000 steps, in the resource's unit.
        error: The standard error of the slope.
        mean: The mean amount.
        growth: The growth from the first to the last sample, on the line.
    """

    slope: float
    error: float
    mean: float
    growth: float

    def is_growing(self, name: str) -> bool:
        """Return whether the resource ``name`` grows significantly, and more than is tolerated."""
        is_significant = self.slope > _ERRORS * self.error
        return is_significant and self.growth > max(0.5, self.mean * _MIN_GROWTH.get(name, 0))


def fit_slope(steps: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the line that the method of least squares fits to ``values``.

    Args:
        steps: The number of steps before each sample. There must be at least three samples.
        values: The amount of the resource in each sample.
    """
    mean_x, mean_y = statistics.fmean(steps), statistics.fmean(values)
    spread = sum((x - mean_x) ** 2 for x in steps)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(steps, values, strict=True)) / spread
    residuals = sum(
        (y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(steps, values, strict=True)
    )
    error = math.sqrt(residuals / (len(steps) - 2) / spread)
    return Slope(1000 * slope, 1000 * error, mean_y, slope * (steps[-1] - steps[0]))


def run_soak(target: Target, seconds: float) -> bool:
    """Run steps for ``seconds`` and print the slopes. Return whether no resource grows."""
    steps = [_make_step(target)]
    if hasattr(target.data_parallel.DataParallel, "cache_frozen_parameters"):
        steps.append(make_frozen_step(target))
    callers = Callers(target)
    step, end, next_sample = 0, time.monotonic() + seconds, 0.0
    # Samples in memory would increase the memory and the number of objects.
    with tempfile.TemporaryFile("w+") as samples, callers.run():
        while time.monotonic() < end:
            for take_step in steps:
                take_step(step)
            step += 1
            if time.monotonic() >= next_sample:
                with callers.pause():
                    print(json.dumps([step, _take_sample()]), file=samples)
                next_sample = time.monotonic() + _INTERVAL
        samples.seek(0)
        lines = samples.readlines()
    measured = [*map(json.loads, lines[int(len(lines) * _WARM_UP) :])]
    if len(measured) < 3:
        raise ValueError(f"{seconds} s are too short: {len(measured)} samples after warm-up")
    slopes = _without_most_types(dict(_fit_all(measured)))
    rows: list[dict[str, Any]] = [
        {
            "resource": name,
            "slope": slope.slope,
            "error": slope.error,
            "mean": slope.mean,
            "grows": slope.is_growing(name),
        }
        for name, slope in slopes.items()
    ]
    print(f"{callers.calls} nested or concurrent calls from {THREADS} threads")
    print(f"{step} steps, {len(measured)} samples after warm-up")
    print(format_slopes({target.name: rows}))
    return not any(row["grows"] for row in rows if not row["resource"].startswith(_TYPE))


def format_slopes(resources: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Return a table with a row for each package and each of its resources."""
    header = ["library", "resource", "growth for 1000 steps", "standard error", "mean", "grows"]
    rows = [
        [
            name,
            row["resource"],
            *(f"{row[key]:.3g}" for key in ("slope", "error", "mean")),
            "yes" if row["grows"] else "no",
        ]
        for name, each in resources.items()
        for row in each
    ]
    return format_table(header, rows)


def _make_step(target: Target) -> Callable[[int], None]:
    """Return a function that makes one forward and backward pass, and checks the gradient."""
    lists = [list(each) for size in range(1, 5) for each in itertools.permutations(range(4), size)]
    lists += [[0, 0], [1, 0, 1], [2, 2, 2, 2]]
    nets = {ordinal: build_net(f"sim:{ordinal}") for ordinal in range(4)}
    wrappers = [target.data_parallel.DataParallel(nets[each[0]], each) for each in lists]
    inputs = {ordinal: create_tensor(5, 3, device=f"sim:{ordinal}") for ordinal in range(4)}
    expected = {
        ordinal: _gradient(nets[ordinal], nets[ordinal], inputs[ordinal]) for ordinal in nets
    }

    def take_step(number: int) -> None:
        index = number % len(lists)
        first = lists[index][0]
        found = _gradient(wrappers[index], nets[first], inputs[first])
        if not torch.equal(found, expected[first]):
            raise AssertionError(f"wrong gradient on {lists[index]}")

    return take_step


def _gradient(run: Callable[[Any], Any], net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    run(x).sum().backward()
    weight = next(net.parameters())
    assert weight.grad is not None
    gradient = weight.grad.cpu()
    net.zero_grad(set_to_none=True)
    return gradient


def _take_sample() -> dict[str, float]:
    gc.collect()
    objects = gc.get_objects()
    types = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects)
    return {
        "host memory (bytes)": _resident_bytes(),
        **{f"memory of sim:{index} (bytes)": n for index, n in enumerate(read_memory())},
        "threads": threading.active_count(),
        "threads of the process": len(os.listdir("/proc/self/task")),
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "objects": len(objects),
        **{f"{_TYPE}{name}": n for name, n in types.items()},
    }


def _resident_bytes() -> int:
    ctypes.CDLL(None).malloc_trim(0)  # Return freed memory to the system.
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _without_most_types(slopes: Mapping[str, Slope]) -> dict[str, Slope]:
    """Return the slopes without the object types that grow least."""
    types = [name for name in slopes if name.startswith(_TYPE)]
    types.sort(key=lambda name: -slopes[name].growth)
    left_out = types[_SHOWN_TYPES:]
    return {name: slope for name, slope in slopes.items() if name not in left_out}


def _fit_all(samples: Sequence[tuple[int, dict[str, float]]]) -> Iterator[tuple[str, Slope]]:
    steps = [float(step) for step, _ in samples]
    for name in {name: None for _, values in samples for name in values}:
        yield name, fit_slope(steps, [values.get(name, 0) for _, values in samples])
