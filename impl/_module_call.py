"""The running call of ``parallel_apply``, and an object that its modules share."""

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

#: The call of the running module, and the index of the module in it.
_running = ContextVar["tuple[ModuleCall, int] | None"]("parallel_apply_call", default=None)


class ModuleCall:
    """One call of several modules, which share an object.

    Args:
        modules: The modules.
        obstacle: The reason why they cannot wait for each other; empty if they can.

    Attributes:
        ended: The indices of the modules that have ended; None for the end of the call.
    """

    def __init__(self, modules: Sequence[Any], obstacle: str = "") -> None:
        self.modules, self.obstacle = modules, obstacle
        self.ended: list[int | None] = []
        self._shared: Any = None
        self._lock = threading.Lock()

    def run(self, index: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``, which calls the module ``index``, in its own context."""
        _running.set((self, index))
        try:
            return function(*args)
        finally:
            self.end(index)

    def end(self, index: int | None = None) -> None:
        """Note that a module, or the call, has ended."""
        # `shared` makes the object before a module reads the list, so no end is missed.
        self.ended.append(index)
        if self._shared is not None:
            self._shared.note_end()

    def shared(self, make: Callable[["ModuleCall"], Any]) -> Any:
        """Return the object that all modules share: ``make(self)``, called once.

        Its method ``note_end`` is called after the end of each module, and of the call.
        """
        with self._lock:
            if self._shared is None:
                self._shared = make(self)
            return self._shared


def running_call() -> tuple[ModuleCall, int] | None:
    """Return the call of the running module, and its index; None outside of such a call."""
    return _running.get()
