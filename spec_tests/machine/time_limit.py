"""The time limits of a test, and of the end of a process.

The limit of a test ends the process of the test, and the failure shows the stack.

An exception would not end the test: Hypothesis would catch it and make the hanging call again, and
a thread that waits in C++ handles no signal.
"""

import hashlib
import os
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

#: The number of frames of the stack, innermost last.
_FRAMES = 6
#: Seconds that a process has to end by itself.
_END_LIMIT = 5


def end_soon(status: int) -> None:
    """End this process with ``status`` in a few seconds, although a thread may never end."""
    timer = threading.Timer(_END_LIMIT, os._exit, (status,))
    timer.daemon = True
    timer.start()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Start the timer of a test in a worker. Without workers pytest-timeout prints all stacks."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid")
    if run is None or settings.method != "thread":
        return None
    main = threading.get_ident()
    arguments = _path(run, item.nodeid), settings.timeout, main
    timer = threading.Timer(settings.timeout, _end, arguments)
    timer.daemon = True
    timer.start()
    item.cancel_timeout = timer.cancel  # pytest-timeout calls it at the end of the test
    return True


def _end(path: Path, seconds: float, thread: int) -> None:
    stack = traceback.format_stack(sys._current_frames()[thread])[-_FRAMES:]
    with suppress(OSError):  # The disk may be full.
        path.write_text(f"it has not ended in {seconds:g} s:\n{''.join(stack)}", "utf-8")
    os._exit(1)


def pop_stack(run: str, node_id: str) -> str:
    """Return the text about a test that its time limit has ended; empty for other tests."""
    path = _path(run, node_id)
    text = path.read_text("utf-8") if path.exists() else ""
    path.unlink(missing_ok=True)
    return text


def _path(run: str, node_id: str) -> Path:
    name = hashlib.sha256(f"{run} {node_id}".encode()).hexdigest()
    return Path(tempfile.gettempdir()) / f"parallel-conformance-{name}"
