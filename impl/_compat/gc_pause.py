"""A pause of Python's garbage collector while many long-lived objects are created."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from .forks import register_fork_handler


@contextmanager
def pause_gc() -> Iterator[None]:
    """Disable the garbage collector inside a ``with`` block.

    The collector runs whenever enough objects have been created. If a block creates a hundred
    thousand objects and drops none, the collector would run many times without effect, and scan
    more objects each time. The setting is process-wide, so garbage of other threads is not
    collected either. Blocks may overlap in several threads. The first block saves whether the
    collector is enabled, and the last block to end restores this.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


class _Pauses:
    """The active blocks of :func:`pause_gc`, in all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: list[int] = []
        self._was_enabled = False

    def begin(self) -> None:
        # One lock for the check and the change. If another block ended between them, this block
        # would save that the collector is disabled, and leave it disabled forever.
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

    def reset_after_fork(self) -> None:
        """Remove the blocks of the parent's other threads, in a forked child."""
        self._lock = Lock()  # A thread of the parent process may have held the old lock.
        was_paused = bool(self._threads)
        self._threads = [each for each in self._threads if each == get_ident()]
        if was_paused and not self._threads and self._was_enabled:
            gc.enable()


_pauses = _Pauses()
register_fork_handler(_pauses.reset_after_fork)
