"""A pause of Python's garbage collector while many long-lived objects are created."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from .forks import register_fork_handler


@contextmanager
def pause_gc() -> Iterator[None]:
    """Disable the garbage collector inside a ``with`` block.

    The collector runs whenever enough objects have been created. While a block creates a hundred
    thousand objects and drops none, it would run many times without effect, the last time over
    the whole heap. The setting is process-wide: garbage of other threads waits, too. Blocks may
    overlap in several threads. The last one to end restores the state that the first one found.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


class _Pauses:
    """The active blocks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: list[int] = []
        self._was_enabled = False

    def begin(self) -> None:
        # The check and the switch are one step: a thread that checks while another pauses the
        # collector, and switches it off after that one has ended, would leave it off for good.
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
        self._lock = Lock()  # Another thread of the parent may hold the old one.
        was_paused = bool(self._threads)
        self._threads = [each for each in self._threads if each == get_ident()]
        if was_paused and not self._threads and self._was_enabled:
            gc.enable()


_pauses = _Pauses()
register_fork_handler(_pauses.reset_after_fork)
