"""Checks for threads and objects that a call leaves behind."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from spec_tests.checks.comparison import same

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


def silence_thread_errors() -> AbstractContextManager[object]:
    """Return a block in which no traceback is printed for an error that ends another thread."""
    return patch.object(threading, "excepthook", lambda _: None)


@contextmanager
def disable_gc() -> Iterator[None]:
    """Disable the garbage collector inside the block, so that reference cycles are not freed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def check_freed(references: Sequence[weakref.ref[object]]) -> None:
    """Wait until the objects of ``references`` are freed; fail with the classes of the others."""
    __tracebackhide__ = True
    wait_until(lambda: all(reference() is None for reference in references))
    alive = (reference() for reference in references)
    found = [type(each).__name__ for each in alive if each is not None]
    same(found, [], place="objects kept alive")


def wait_for_thread_count(count: int) -> bool:
    """Return whether the number of threads falls to ``count`` or less."""
    return wait_until(lambda: threading.active_count() <= count)
