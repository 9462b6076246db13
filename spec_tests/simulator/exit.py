"""Leaving the process without a crash.

When a backward pass returns, the autograd thread of the last device may still hold its graph,
and needs Python to release it. A process that ends at that moment is aborted.
"""

import time
from pathlib import Path

__all__ = ["wait_for_autograd_threads"]

_LOOK_EVERY = 0.005  # seconds, in which the threads may take the interpreter lock
_LOOKS = 3
_PATIENCE = 2.0  # seconds


def wait_for_autograd_threads() -> None:
    """Wait until every autograd thread has slept for a moment with nothing in its way."""
    give_up = time.monotonic() + _PATIENCE
    quiet = 0
    while quiet < _LOOKS and time.monotonic() < give_up:
        time.sleep(_LOOK_EVERY)
        quiet = 0 if _is_any_running() else quiet + 1


def _is_any_running() -> bool:
    return any(_is_running(task) for task in Path("/proc/self/task").glob("*"))


def _is_running(task: Path) -> bool:
    try:
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:  # the thread has ended
        return False
    return name.startswith("pt_autograd") and rest.split()[0] != "S"
