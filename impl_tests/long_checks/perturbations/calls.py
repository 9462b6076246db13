"""A call of a public function: its arguments by name, and how to make it."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from spec_tests.checks import nested_values


@dataclass(frozen=True)
class BoundCall:
    """A call.

    Args:
        function: The called function.
        bound: The arguments by name. ``self`` is one of them in a call of a method.
    """

    function: Callable[..., Any]
    bound: inspect.BoundArguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The given arguments by name."""
        return self.bound.arguments

    def run(self) -> Any:
        """Make the call."""
        return self.function(*self.bound.args, **self.bound.kwargs)

    def with_arguments(self, **changed: Any) -> "BoundCall":
        """Return the call with other values of some arguments."""
        arguments = {**self.arguments, **changed}
        return replace(self, bound=inspect.BoundArguments(self.bound.signature, arguments))

    def tensors(self) -> list[Tensor]:
        """Return the tensors in the arguments, without those of modules."""
        return [
            tensor
            for name, value in self.arguments.items()
            if name != "self"
            for tensor in tensors_in(value)
        ]

    def modules(self) -> list[nn.Module]:
        """Return the modules in the arguments, and the module that ``self`` wraps."""
        found: list[nn.Module] = []
        for name, value in self.arguments.items():
            if name == "self":
                found += modules_in(list(vars(value).get("_modules", {}).values()))
            else:
                found += modules_in(value)
        return found


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [member for member in members(value) if isinstance(member, Tensor)]


def modules_in(value: object) -> list[nn.Module]:
    """Return the modules in nested containers."""
    return [member for member in members(value) if isinstance(member, nn.Module)]


def members(value: object) -> Iterator[object]:
    """Yield a value and its members at all levels."""
    try:
        yield from [member for _, member in nested_values.walk(value, "")]
    except Exception:  # an argument may be a container that raises
        return


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return ``value`` with each tensor replaced. A tensor that cannot be changed stays."""

    def attempt(tensor: Tensor) -> Tensor:
        try:
            return change(tensor)
        except Exception:  # no tensor of this kind can be changed like this
            return tensor

    return pytree.tree_map_only(torch.Tensor, attempt, value)
