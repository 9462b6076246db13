"""The table of kinds, and decorators that turn a small change into a kind."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from impl_tests.weekly.perturbations.calls import Call, map_tensors

__all__ = ["KINDS", "OPERATORS", "UNDO", "add", "around", "of_result", "of_tensors", "with_word"]

#: Name of a kind -> a function that makes a call in a wrong way. Its second argument is the word
#: after a colon, such as the name of an argument; empty if there is none.
KINDS: dict[str, Callable[[Call, str], Any]] = {}
#: The kinds that change each tensor of a result, as functions of a tensor.
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {}
#: Functions that undo changes of this process's state by the test that runs.
UNDO: list[Callable[[], object]] = []


def add(change: Callable[..., Any], run: Callable[[Call, str], Any], prefix: str = "") -> None:
    """Add a kind with the name and the docstring of ``change``, which makes calls by ``run``."""
    run.__doc__ = change.__doc__
    KINDS[prefix + change.__name__.strip("_").replace("_", "-")] = run


def with_word(run: Callable[[Call, str], Any]) -> Callable[[Call, str], Any]:
    """Add a function that makes the call, and gets the word after the colon."""
    add(run, run)
    return run


def around(function: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Add a function that makes the call."""
    add(function, lambda call, word: function(call))
    return function


def of_result(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add a change of the result. A result that cannot be changed is returned."""

    def run(call: Call, word: str) -> Any:
        result = call.run()
        try:
            return change(result)
        except Exception:  # this result cannot be changed in this way
            return result

    add(change, run)
    return change


def of_tensors(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Add a change of each tensor in the result."""
    add(change, lambda call, word: map_tensors(change, call.run()))
    OPERATORS[next(reversed(KINDS))] = change
    return change
