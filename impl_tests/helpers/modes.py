"""Modes of PyTorch, and a call in a thread, that several test files use."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")
_COPIES = (torch.ops.aten.copy_, torch.ops.aten._to_copy)


class FunctionMode(TorchFunctionMode):
    """A torch function mode that calls each function unchanged."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


class OperatorLog(TorchDispatchMode):  # type: ignore[no-untyped-call] # in torch
    """A dispatch mode that records each operator with its arguments in ``calls``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # in torch
        self.calls: list[tuple[Any, Any, dict[str, Any]]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    def host_waits(self) -> list[bool]:
        """Return for each recorded copy whether the host waits for it."""
        options = [
            {**dict(enumerate(args)), **kwargs}
            for function, args, kwargs in self.calls
            if function.overloadpacket in _COPIES
        ]
        return [not option.get("non_blocking", option.get(2, False)) for option in options]


def call_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` in a new thread; return its result."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]
