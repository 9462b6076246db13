"""What a call leaves behind: threads, and objects that should be gone."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: Seconds that a thread may take to let go of what it worked on, and between two looks.
_MOMENT = 2.0
_PAUSE = 0.01


def becomes(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` is true now or soon: a thread may need a moment to let go."""
    end = time.monotonic() + _MOMENT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True


@contextmanager
def no_thread_reports() -> Iterator[None]:
    """A block in which a thread that dies of an exception does not report it."""
    before = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A block in which a reference cycle keeps its objects for good."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def is_all_gone(references: Sequence[weakref.ref[object]]) -> bool:
    """Whether no object of ``references`` is left."""
    return becomes(lambda: all(reference() is None for reference in references))


def has_no_more_threads_than(count: int) -> bool:
    """Whether there are ``count`` threads at most, now or soon."""
    return becomes(lambda: threading.active_count() <= count)
