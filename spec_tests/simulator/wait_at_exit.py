"""Waits for the autograd threads when the process exits.

When a backward pass returns, the autograd thread of the last device may still hold the graph. The
thread needs the Python interpreter to release the graph. If the interpreter exits before that, the
process aborts.
"""

import time
from pathlib import Path

#: Seconds between two polls. Other threads can acquire the GIL while the main thread sleeps.
_POLL_INTERVAL = 0.005
#: Consecutive polls that must find all autograd threads asleep.
_IDLE_POLLS = 3
#: Seconds to wait before the process exits anyway.
_TIMEOUT = 2.0


def wait_for_autograd_threads() -> None:
    """Wait until every autograd thread has been asleep for some milliseconds."""
    deadline = time.monotonic() + _TIMEOUT
    idle = 0
    while idle < _IDLE_POLLS and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)
        is_running = any(map(_is_running_autograd_thread, Path("/proc/self/task").glob("*")))
        idle = 0 if is_running else idle + 1


def _is_running_autograd_thread(task_folder: Path) -> bool:
    try:
        name, _, fields = (task_folder / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:  # the thread has ended
        return False
    return name.startswith("pt_autograd") and fields.split()[0] != "S"
