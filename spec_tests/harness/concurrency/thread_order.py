"""Threads that run one after the other, in an order that the test chooses."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: Seconds for which a thread waits for the others. Only a wrong target takes as long.
TIMEOUT = 5.0


class ThreadOrder:
    """Admits several threads to their blocks one after the other, in ``order``.

    All threads must run at the same time: a target that runs its modules one after the other gets
    a TimeoutError.

    Args:
        order: The numbers of the threads, first to last.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = tuple(order)
        self._passed = 0
        self._changed = threading.Condition()

    @property
    def passed(self) -> int:
        """The number of threads that have left their blocks."""
        with self._changed:
            return self._passed

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Wait until all threads before ``number`` have left their blocks."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(number), TIMEOUT):
                raise TimeoutError(
                    f"module {number} waited {TIMEOUT} s for the other modules to run"
                )
        try:
            yield
        finally:
            with self._changed:
                self._passed += 1
                self._changed.notify_all()

    def _is_next(self, number: int) -> bool:
        return self._order[self._passed : self._passed + 1] == (number,)
