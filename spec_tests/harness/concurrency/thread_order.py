"""Threads let through one by one, in an order that the test chooses."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: Seconds that a thread waits for the others. Only a target that is wrong waits so long.
PATIENCE = 5.0


class ThreadOrder:
    """Lets each of several threads into its block once, in ``order``.

    Only threads that run at the same time all get through: a target that runs its modules one
    after the other is told so by a TimeoutError.

    Args:
        order: The numbers of the threads, first come first.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = tuple(order)
        self._passed = 0
        self._changed = threading.Condition()

    @property
    def passed(self) -> int:
        """How many threads have left their blocks."""
        with self._changed:
            return self._passed

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Wait until all that come before ``number`` have left their blocks."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(number), PATIENCE):
                raise TimeoutError(f"module {number} waited in vain for the others to run")
        try:
            yield
        finally:
            with self._changed:
                self._passed += 1
                self._changed.notify_all()

    def _is_next(self, number: int) -> bool:
        return self._order[self._passed : self._passed + 1] == (number,)
