"""Python's garbage collector, which is in the way while much is built that stays."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, get_ident

__all__ = ["use_paused_collector"]


@contextmanager
def use_paused_collector() -> Iterator[None]:
    """Keep the collector from running inside a ``with`` block.

    It runs whenever enough objects have been made, and looks at all that there are. Where a
    block makes a hundred thousand and drops none, it would run in vain many times, and the last
    time over the whole heap. The setting is the process's: other threads' garbage waits, too.
    Blocks may overlap in several threads; when the last one ends, the collector is again as the
    first one has found it.
    """
    _mind_forks()
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


class _Pauses:
    """The blocks that last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: list[int] = []
        self._was_enabled = False

    def begin(self) -> None:
        # To ask and to switch it off is one step: a thread that asked while another paused the
        # collector, and switched it off when that one had ended, would leave it off for good.
        with self._lock:
            if not self._threads:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._threads.append(get_ident())

    def end(self) -> None:
        with self._lock:
            self._threads.remove(get_ident())
            if not self._threads and self._was_enabled:
                gc.enable()

    def leave_alone(self) -> None:
        """Forget, in a forked child, the blocks of the threads that were not forked."""
        self._lock = Lock()  # The old one may be held by one of these.
        there_were = bool(self._threads)
        self._threads = [each for each in self._threads if each == get_ident()]
        if there_were and not self._threads and self._was_enabled:
            gc.enable()


_pauses = _Pauses()


@cache
def _mind_forks() -> None:
    if hasattr(os, "register_at_fork"):  # Windows has no forks.
        os.register_at_fork(after_in_child=_pauses.leave_alone)
