"""Layers, and an optimizer whose steps increase no version counter."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Counting", "FrozenLayer", "UnversionedSGD", "addresses"]


class FrozenLayer(nn.Linear):
    """A frozen layer that appends the weight of each forward to ``seen``."""

    def __init__(self, size: int = 2) -> None:
        super().__init__(size, size)
        self.requires_grad_(False)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Append the weight to ``seen``, and return the outputs of the layer."""
        self.seen.append(self.weight)
        return super().forward(x)


class Counting(nn.Module):
    """A module that adds its weight, and then changes it in a chunk with negative rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows plus the weight."""
        y = x + self.weight
        if x.min() < 0:
            self.weight.add_(1)
        return y


def addresses(tensors: Iterable[Tensor]) -> set[tuple[torch.device, int]]:
    """Return the device and the address of each tensor."""
    return {(tensor.device, tensor.data_ptr()) for tensor in tensors}


class UnversionedSGD(torch.optim.Optimizer):
    """Gradient descent that increases no version counter, like the fused optimizers of PyTorch."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1.0, **_: Any) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override] # torch overloads it
        """Subtract the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.change(parameter, -group["lr"] * parameter.grad)

    def change(self, parameter: nn.Parameter, change: Tensor) -> None:
        """Add ``change`` to the parameter."""
        parameter.data.add_(change)
