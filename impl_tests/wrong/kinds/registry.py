"""Decorators that turn a small change into a kind."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors

__all__ = ["Around", "Registry"]

#: Makes a call in a wrong way.
Around = Callable[[Call], Any]


class Registry(dict[str, Around]):
    """Kinds by name. The methods are decorators; a kind has the name of the function."""

    def around(self, function: Around) -> Around:
        """Register a function that makes the call itself."""
        self[_name(function)] = function
        return function

    def result(self, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Register a change of the result. A result that cannot be changed is returned."""

        def run(call: Call) -> Any:
            result = call.run()
            try:
                return change(result)
            except Exception:  # this result cannot be changed in this way
                return result

        self[_name(change)] = run
        return change

    def tensors(self, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Register a change of each tensor in the result."""
        self[_name(change)] = lambda call: map_tensors(change, call.run())
        return change


def _name(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", "-")
