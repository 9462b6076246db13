"""Small modules. Most show in their output or state how they were called."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.machine import capabilities


class Calls(nn.Module):
    """A module whose forward calls a function.

    Args:
        function: The function. Its first argument is the module.
        members: The other attributes, parameters, buffers and submodules of the module, by name.
    """

    def __init__(self, function: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function."""
        return self.function(self, *args, **kwargs)


class OrdinalColumn(nn.Module):
    """A module that appends a column with the ordinal of its device to the input."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows with one more column: the ordinal of the device."""
        column = (x[:, :1] * 0 + x.device.index) * self.weight + self.offset
        return torch.cat([x, column], dim=1)


class ArgumentCounts(nn.Module):
    """A module that returns a row: len(args), len(kwargs), current device, its own device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return one row of four numbers. The devices are ordinals."""
        ordinal = torch.accelerator.current_device_index()
        counts = [len(args), len(kwargs), ordinal, self.weight.device.index]
        return torch.tensor([counts], device=self.weight.device)


class WeightedSum(nn.Module):
    """A module that returns a 0-dim tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the input times the weight."""
        return (x * self.weight).sum()


class Double(nn.Module):
    """A module without parameters that returns a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """Return twice the input."""
        return x * 2


class StateUpdater(nn.Module):
    """A module that writes one buffer in place, replaces another, and sets an attribute."""

    seen: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        """Update the state and return the input."""
        self.seen += x.sum()
        self.last = x.sum().reshape(1)
        self.rows = len(x)
        return x


class ComplexAffine(nn.Module):
    """An affine map with a complex parameter and a complex buffer.

    The test is not-run if the devices lack complex numbers.
    """

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        capabilities.require("complex64")
        self.weight = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
        self.register_buffer("shift", torch.tensor([1j, 2.0 + 0j]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the complex rows, and a view of their real parts."""
        rows = x * self.weight + self.shift
        return rows, rows.real


class FailsFromLimit(nn.Module):
    """A module that raises a KeyError if the first element of its input is ``limit`` or more."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """Return the input. Raise a KeyError if its first element is ``limit`` or larger."""
        if x.detach().reshape(-1)[0].item() >= self.limit:
            raise KeyError(f"refused on a device of type {x.device.type}")
        return x


class CurrentDevice(nn.Module):
    """A module that returns the ordinal of the current device, for any arguments."""

    def forward(self, *_: object, **__: object) -> int:
        """Return the ordinal of the current device."""
        return torch.accelerator.current_device_index()
