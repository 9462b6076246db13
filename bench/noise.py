"""Measure how much of the processors other processes leave to a benchmark.

A thread that computes without waiting has the same processor time as wall time, if it has a
processor for itself. It has less processor time if other processes use the processor, too.
"""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

__all__ = ["ProcessorShare"]

#: Seconds between two samples, and rounds of the hash function in a sample (about 8 ms). Shorter
#: computations often end before the system lets another process run.
_INTERVAL, _ROUNDS = 0.1, 20_000
#: The largest number of threads of a sample. No benchmark uses more than four devices.
_MAX_THREADS = 4


class ProcessorShare:
    """The processor time of sample computations, divided by their wall time.

    Each sample computes on all processors at the same time. Nothing of impl is part of it, so a
    slower impl does not change the share.
    """

    def __init__(self) -> None:
        self._threads = min(_count_processors(), _MAX_THREADS)
        self._next = 0.0
        self._processor_time = self._wall_time = 0.0

    def sample(self) -> None:
        """Compute for some milliseconds, unless the last sample ended less than 0.1 s ago."""
        if time.perf_counter() < self._next:
            return
        with ThreadPoolExecutor(self._threads) as pool:
            for processor_time, wall_time in pool.map(_compute, range(self._threads)):
                self._processor_time += processor_time
                self._wall_time += wall_time
        self._next = time.perf_counter() + _INTERVAL

    @property
    def value(self) -> float:
        """The share of all samples, from 0 to 1. There must be a sample."""
        return min(1.0, self._processor_time / self._wall_time)


def _count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compute(_: int) -> tuple[float, float]:
    """Compute without the interpreter lock; return the processor time and the wall time."""
    processor_start, wall_start = time.thread_time(), time.perf_counter()
    hashlib.pbkdf2_hmac("sha256", b"", b"", _ROUNDS)
    return time.thread_time() - processor_start, time.perf_counter() - wall_start
