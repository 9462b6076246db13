"""Small modules. Most show in their output or state how they were called."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


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


class Double(nn.Module):
    """A module without parameters that returns a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """Return twice the input."""
        return x * 2


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
