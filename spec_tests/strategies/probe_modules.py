"""Modules that tell where and how they were called."""

from typing import Any

import torch
from torch import Tensor, nn


class OrdinalColumn(nn.Module):
    """Adds a column with the ordinal of its device to rows, whose own device it must be."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """The rows with one column more."""
        column = (x[:, :1] * 0 + x.device.index) * self.weight + self.offset
        return torch.cat([x, column], dim=1)


class ArgumentCounts(nn.Module):
    """Tells, in a row, how many positional and keyword arguments it got, and on which device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """One row."""
        ordinal = torch.accelerator.current_device_index()
        counts = [len(args), len(kwargs), ordinal, self.weight.device.index]
        return torch.tensor([counts], device=self.weight.device)


class WeightedSum(nn.Module):
    """The sum of its input: a tensor without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum."""
        return (x * self.weight).sum()


class Double(nn.Module):
    """Makes a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice the input."""
        return x * 2


class StateUpdater(nn.Module):
    """Changes a buffer in place, rebinds another, and sets an attribute."""

    seen: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        """The rows."""
        self.seen += x.sum()
        self.last = x.sum().reshape(1)
        self.rows = len(x)
        return x


class ComplexAffine(nn.Module):
    """Complex parameters and buffers, real or complex rows."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
        self.register_buffer("shift", torch.tensor([1j, 2.0 + 0j]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Complex rows, and their real parts."""
        rows = x * self.weight + self.shift
        return rows, rows.real


class FailsFromLimit(nn.Module):
    """Fails on rows that begin with a number of at least ``limit``."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """The rows."""
        if x.detach().reshape(-1)[0].item() >= self.limit:
            raise KeyError(f"refused on a device of type {x.device.type}")
        return x
