"""Checks for threads and objects that a call leaves behind."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: Seconds for which a condition may stay false, and seconds between two checks.
_TIMEOUT = 2.0
_INTERVAL = 0.01


def wait_until(condition: Callable[[], bool]) -> bool:
    """Return whether ``condition`` becomes true within two seconds: threads free objects late."""
    end = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_INTERVAL)
    return True


@contextmanager
def silence_thread_errors() -> Iterator[None]:
    """Silence ``threading.excepthook`` inside the block."""
    before = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def disable_gc() -> Iterator[None]:
    """Switch the garbage collector off inside the block, so that cycles keep their objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wait_until_freed(references: Sequence[weakref.ref[object]]) -> bool:
    """Return whether all objects of ``references`` are freed within two seconds."""
    return wait_until(lambda: all(reference() is None for reference in references))


def wait_for_thread_count(count: int) -> bool:
    """Return whether at most ``count`` threads are alive within two seconds."""
    return wait_until(lambda: threading.active_count() <= count)
