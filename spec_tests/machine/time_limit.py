"""The time limit of a test, or of an example that Hypothesis draws: it ends the process.

An exception would not end the test: Hypothesis would catch it and make the hanging call again, and
a thread that waits in C++ handles no signal. `judge` judges tests that end their process.
"""

import faulthandler
import hashlib
import os
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

#: The chapters about single functions, and files whose tests compile modules or start processes.
_OF_ONE_FUNCTION = ("comm", "functions", "scatter_gather", "replicate", "parallel_apply")
SLOW = ("test_compiled", "test_compiled_modules", "test_callers")
#: The limits of an example in a test of single functions: seconds, and seconds of processor time.
EXAMPLE_LIMIT, PROCESSOR_LIMIT = 120, 60
#: The number of frames of the stack, innermost last.
_FRAMES = 6
#: When the running example has started, and the processor time of the process before it.
_started: list[float] = [0.0, 0.0]


def start_example() -> None:
    """Store that a test, or an example of it, starts now."""
    _started[:] = time.monotonic(), time.process_time()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Start the timer of a test in a worker. Without workers pytest-timeout prints all stacks."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid")
    if run is None or settings.method != "thread":
        return None
    is_single = item.path.parent.name in _OF_ONE_FUNCTION and item.path.stem not in SLOW
    is_given = item.config.option.has_time_limit or item.get_closest_marker("timeout") is not None
    ended = threading.Event()
    limit = settings.timeout if is_given or not is_single else None
    arguments = _path(run, item.nodeid), limit, threading.get_ident(), ended
    threading.Thread(target=_end_at_limit, args=arguments, daemon=True).start()
    item.cancel_timeout = ended.set  # pytest-timeout calls it at the end of the test
    return True


def _end_at_limit(path: Path, limit: float | None, thread: int, ended: threading.Event) -> None:
    """End the process if the test reaches ``limit``; None: if an example reaches its limits.

    If a thread hangs in C and keeps the interpreter lock, this function does not run any more, and
    faulthandler ends the process.
    """
    start = time.monotonic()
    while True:
        # A test may replace sys.stderr: 2 is its file.
        faulthandler.dump_traceback_later(2 * (limit or EXAMPLE_LIMIT), exit=True, file=2)
        if ended.wait(1):
            faulthandler.cancel_dump_traceback_later()
            return
        if text := _reached_limit(limit, time.monotonic() - start):
            _end(path, text, thread)


def _reached_limit(limit: float | None, seconds: float) -> str:
    """Return which limit a test has reached after ``seconds``; empty if it has reached none."""
    if limit is not None:
        return f"it has not ended in {limit:g} s" if seconds >= limit else ""
    of_example, own = time.monotonic() - _started[0], time.process_time() - _started[1]
    if of_example > EXAMPLE_LIMIT:
        return f"an example has not ended in {EXAMPLE_LIMIT} s"
    if own > PROCESSOR_LIMIT:
        return f"an example has not ended in {PROCESSOR_LIMIT} s of processor time"
    return ""


def _end(path: Path, text: str, thread: int) -> None:
    stack = traceback.format_stack(sys._current_frames()[thread])[-_FRAMES:]
    with suppress(OSError):  # The disk may be full.
        path.write_text(f"{text}:\n{''.join(stack)}", "utf-8")
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
