"""Measure how much of the processors other processes leave to a benchmark.

Linux counts the time in which each processor is busy, and the time that it computes for each
process. Their difference is the time of other processes and of a hypervisor's other machines.
Nothing of impl is part of it, so a slower impl does not change the share.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ProcessorShare"]

_PROC = Path("/proc")
#: The fields of /proc/stat in which a processor is not busy: idle and waiting for input.
_NOT_BUSY = (3, 4)
#: The fields of /proc/stat that are no part of others. The later ones are parts of the first.
_FIELDS = 8


class ProcessorShare:
    """The share of the processors that other processes left to this one since the start."""

    def __init__(self) -> None:
        self._wall, self._others = time.perf_counter(), _time_of_others()

    @property
    def value(self) -> float:
        """The share, from 0 to 1."""
        others = _time_of_others() - self._others
        wall = (time.perf_counter() - self._wall) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, 1 - others / wall))


def _time_of_others() -> float:
    """Return the seconds that all processors have computed for other processes."""
    first_line, _, _ = (_PROC / "stat").read_text().partition("\n")
    fields = [int(field) for field in first_line.split()[1:][:_FIELDS]]
    busy = sum(fields) - sum(fields[index] for index in _NOT_BUSY)
    return busy / os.sysconf("SC_CLK_TCK") - _time_of_this_process()


def _time_of_this_process() -> float:
    """Return the seconds of this process and of its children, which a benchmark may start."""
    ended = os.times()
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # The second field, the name in parentheses, may contain spaces.
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # The process has ended.
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    alive = sum(seconds[pid] for pid in parents if _is_below(pid, os.getpid(), parents))
    return alive + ended.children_user + ended.children_system


def _is_below(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid not in (ancestor, 0):
        pid = parents.get(pid, 0)
    return pid == ancestor
