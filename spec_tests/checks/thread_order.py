"""Runs blocks of several threads one after the other, in an order that the test chooses."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: Seconds after which a thread that waits for its turn raises a TimeoutError.
TIMEOUT = 5.0
#: The parts of this time. A process that was stopped, or a machine that was suspended, in the
#: meantime has lost one part, and the other threads have the rest.
_PARTS = 100


class ThreadOrder:
    """The order in which several threads run their blocks ``with order.turn(number):``.

    The threads must run at the same time. If the target runs the modules one after the other,
    `turn` raises a TimeoutError.

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
        """Wait until the threads that precede ``number`` in the order have left their blocks."""
        with self._changed:
            if not any(
                self._changed.wait_for(lambda: self._is_next(number), TIMEOUT / _PARTS)
                for _ in range(_PARTS)
            ):
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
