"""The running call of ``parallel_apply``, whose modules may share objects."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

#: The call of the running module, and the index of the module in it.
_running = ContextVar["tuple[ModuleCall, int] | None"]("parallel_apply_call", default=None)


class ModuleCall:
    """One call of several modules.

    Args:
        modules: The modules.
        obstacle: The reason why they cannot wait for each other; empty if they can.

    Attributes:
        ended: The indices of the modules that have ended; None for the end of the call.
        abandoned: The indices of modules that fail because another module has ended.
        shared: Objects that the modules share, by class. Their method ``note_end`` is called with
            this call after the end of each module, and of the call.
    """

    def __init__(self, modules: Sequence[Any], obstacle: str = "") -> None:
        self.modules, self.obstacle = modules, obstacle
        self.ended: list[int | None] = []
        self.abandoned: set[int] = set()
        self.shared: dict[type, Any] = {}

    def run(self, index: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``, which calls the module ``index``, in its own context."""
        _running.set((self, index))
        try:
            return function(*args)
        finally:
            self.end(index)

    def end(self, index: int | None = None) -> None:
        """Note that a module, or the call, has ended."""
        # An object is in `shared` before a module reads `ended`, so no end is missed.
        self.ended.append(index)
        for each in [*self.shared.values()]:
            each.note_end(self)


def running_call() -> tuple[ModuleCall, int] | None:
    """Return the call of the running module, and its index; None outside of such a call."""
    return _running.get()
