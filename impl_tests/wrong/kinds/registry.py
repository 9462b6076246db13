"""The table of kinds, and decorators that turn a small change into a kind."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors

__all__ = ["KINDS", "Registry"]


class Registry(dict[str, Callable[[Call], Any]]):
    """Kinds by name: functions that make a call in a wrong way.

    The methods are decorators; a kind has the name of the function.

    Attributes:
        detailed: The kinds with a word after a colon, such as the name of an argument: functions
            of a call and of the word.
        operators: The kinds that change each tensor of a result: functions of a tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.detailed: dict[str, Callable[[Call, str], Any]] = {}
        self.operators: dict[str, Callable[[Tensor], Tensor]] = {}

    def around(self, function: Callable[[Call], Any]) -> Callable[[Call], Any]:
        """Register a function that makes the call itself."""
        self[_name(function)] = function
        return function

    def detail(self, function: Callable[[Call, str], Any]) -> Callable[[Call, str], Any]:
        """Register a function that makes the call itself, and gets the word after the colon."""
        self.detailed[_name(function)] = function
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
        self.operators[_name(change)] = change
        return change


def _name(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", "-")


KINDS = Registry()
