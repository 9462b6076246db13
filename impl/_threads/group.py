"""Values that the modules of one call of ``parallel_apply`` exchange while they run."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from threading import Condition
from typing import Any

from torch import nn

from .exceptions import mark_consequence

#: The group of the running module, and the index of the module in the group.
_own_group = ContextVar["tuple[ModuleGroup, int] | None"]("module_group", default=None)


class _Exchange:
    """For each module that has come to an exchange: its layer, its value and its result."""

    def __init__(self) -> None:
        self.layers: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.results: Sequence[Any] = ()


class ModuleGroup:
    """The modules of one call.

    Args:
        modules: The modules.
        obstacle: The reason why they cannot wait for each other; empty if they can.
    """

    def __init__(self, modules: Sequence[Any], obstacle: str = "") -> None:
        self.modules, self.obstacle = modules, obstacle
        self._changed = Condition()
        self._next = _Exchange()
        #: The indices of the modules that have ended; None for the end of the call.
        self._ended: list[int | None] = []
        #: The text of the error of all later exchanges.
        self._failure = ""

    def call(self, index: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``, which calls the module ``index``, in its own context."""
        _own_group.set((self, index))
        try:
            return function(*args)
        finally:
            self.end(index)

    def end(self, index: int | None = None) -> None:
        """Make exchanges fail that wait or begin later, because a module will not come."""
        self._ended.append(index)
        # An exchange adds a layer before it reads the list, so the lock is seldom needed.
        if self._next.layers:
            with self._changed:
                if self._next.layers:
                    self._fail()

    def exchange(
        self, index: int, layer: Any, value: Any, combine: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Any:
        """Wait until all modules have passed a value, and return entry ``index`` of the result.

        The result is that of ``combine(values)``, called in one of the threads. ``layer`` is the
        layer of this module that calls; ``layer.identity`` is the same object in all modules.
        Raise RuntimeError if another module has ended, or waits in another layer.
        """
        with self._changed:
            current = self._next
            current.layers[index], current.values[index] = layer, value
            identities = {id(each.identity) for each in current.layers.values()}
            if self._ended or len(identities) > 1:
                self._fail()
            elif len(current.values) == len(self.modules):
                self._next = _Exchange()
                try:
                    current.results = combine(
                        [current.values[i] for i in range(len(self.modules))]
                    )
                except BaseException:
                    self._failure = f"{self.name_of(index, layer)} has failed in replica {index}"
                    raise
                finally:
                    self._changed.notify_all()
            while not (current.results or self._failure):
                self._changed.wait()
            if not current.results:
                error = RuntimeError(self._failure)
                mark_consequence(error)
                raise error
            return current.results[index]

    def _fail(self) -> None:
        if not self._failure:
            layers = sorted(self._next.layers.items())
            facts = [f"replica {i} waits in {self.name_of(i, layer)}" for i, layer in layers]
            if self._ended:
                ended = self._ended[0]
                facts.append(
                    "the call has ended" if ended is None else f"replica {ended} has ended"
                )
            rule = "All replicas must call the same layers in the same order"
            self._failure = f"{rule}, but {' and '.join(facts)}"
        self._changed.notify_all()

    def name_of(self, index: int, layer: nn.Module) -> str:
        """Return the class of ``layer`` and its name in module ``index``, if it has one."""
        root = self.modules[index]
        names = root.named_modules() if isinstance(root, nn.Module) else ()
        name = next((name for name, module in names if module is layer), "")
        return f"{type(layer).__name__} {name!r}" if name else type(layer).__name__


def module_group() -> tuple[ModuleGroup, int] | None:
    """Return the group of the running module and its index; None outside of ``parallel_apply``."""
    return _own_group.get()
