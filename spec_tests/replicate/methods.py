"""Modules that store bound methods as attributes."""

from types import MethodType

import torch
from torch import Tensor, nn

from spec_tests.strategies.layers import WIDTH


class ModuleWithStoredMethods(nn.Module):
    """A module that stores one of its methods, and a method of its child, as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self.child = nn.Linear(WIDTH, WIDTH)
        self.own_method = self._scaled
        self.child_method = self.child.forward

    def _scaled(self, x: Tensor) -> Tensor:
        return x * self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Apply the stored method of this module, then the stored method of the child."""
        result: Tensor = self.child_method(self.own_method(x))
        return result


def make_linear_with_stored_forward() -> nn.Module:
    """Return a module that stores its ``forward`` as an attribute, like a patched module."""
    module = nn.Linear(WIDTH, WIDTH)
    module.forward = module.forward  # type: ignore[method-assign]
    return module


def get_method_owners(module: nn.Module) -> dict[str, object]:
    """Return the object to which each stored method, and ``forward``, is bound."""
    attributes = vars(module).items()
    methods = {name: value for name, value in attributes if isinstance(value, MethodType)}
    return {name: method.__self__ for name, method in methods.items()} | {
        "forward": getattr(module.forward, "__self__", None)
    }
