"""Checks for threads and objects that a call leaves behind."""

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: Seconds after which `wait_until` gives up: the first time in a test, and then in this test.
#: Hypothesis repeats a failing test.
_TIMEOUT, _NEXT_TIMEOUT = 20.0, 2.0
#: The tests in which `wait_until` has given up.
_gave_up: set[str] = set()
#: Seconds between two checks of a condition.
_INTERVAL = 0.01


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait until ``condition`` is true, at most 20 seconds; return whether it became true."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    end = time.monotonic() + (_NEXT_TIMEOUT if test in _gave_up else _TIMEOUT)
    while not condition():
        if time.monotonic() > end:
            _gave_up.add(test)
            return False
        time.sleep(_INTERVAL)
    return True


@contextmanager
def silence_thread_errors() -> Iterator[None]:
    """Hide the tracebacks of exceptions that end other threads inside the block."""
    before = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def disable_gc() -> Iterator[None]:
    """Disable the garbage collector inside the block, so that reference cycles are not freed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def find_alive(references: Sequence[weakref.ref[object]]) -> list[str]:
    """Wait until the objects of ``references`` are freed; return the classes of the others."""
    wait_until(lambda: all(reference() is None for reference in references))
    return [type(found).__name__ for reference in references if (found := reference()) is not None]


def wait_for_thread_count(count: int) -> bool:
    """Return whether the number of threads falls to ``count`` or less."""
    return wait_until(lambda: threading.active_count() <= count)
