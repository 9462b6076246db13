"""Modules that store bound methods as attributes."""

from types import MethodType

import torch
from torch import Tensor, nn

from spec_tests.strategies.layers import WIDTH


class StoringMethods(nn.Module):
    """Stores a method of its own and a method of its child as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self.child = nn.Linear(WIDTH, WIDTH)
        self.operation = self._scaled
        self.below = self.child.forward

    def _scaled(self, x: Tensor) -> Tensor:
        return x * self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of both methods."""
        result: Tensor = self.below(self.operation(x))
        return result


def with_stored_forward() -> nn.Module:
    """Return a module whose forward is an attribute, as wrappers of other packages leave it."""
    module = nn.Linear(WIDTH, WIDTH)
    module.forward = module.forward  # type: ignore[method-assign]
    return module


def owners(module: nn.Module) -> dict[str, object]:
    """Return the owner of each method that is stored as an attribute, and of ``forward``."""
    kept = {name: each for name, each in vars(module).items() if isinstance(each, MethodType)}
    return {name: each.__self__ for name, each in kept.items()} | {
        "forward": getattr(module.forward, "__self__", None)
    }
