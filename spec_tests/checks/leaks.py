"""Checks for threads and objects that a call leaves behind."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: Seconds after which `wait_until` gives up if the process does nothing, and in any case.
_IDLE_LIMIT, _LIMIT = 2.0, 20.0
#: Processor time, in seconds, that the wait itself may take in `_IDLE_LIMIT`.
_OWN_TIME = 0.2
#: Seconds between two checks of a condition.
_INTERVAL = 0.01


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait until ``condition`` is true; return whether it became true.

    Wait 2 seconds, or up to 20 while other threads compute: on a busy machine they take longer.
    """
    limit = time.monotonic() + _LIMIT
    end, used = time.monotonic() + _IDLE_LIMIT, time.process_time()
    while not condition():
        now = time.monotonic()
        if now > end:
            if now > limit or time.process_time() - used < _OWN_TIME:
                return False
            end, used = now + _IDLE_LIMIT, time.process_time()
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
