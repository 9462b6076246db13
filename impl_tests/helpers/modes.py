"""A mode of PyTorch, and a call in a thread, that several test files use."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from torch.overrides import TorchFunctionMode

T = TypeVar("T")


class FunctionMode(TorchFunctionMode):
    """A torch function mode that calls each function unchanged."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def call_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` in a new thread; return its result."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]
