"""Modules that read or change the state of the thread that runs them."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.thread_state import CONTEXT_VARIABLE, visible_state


class StateProbe(nn.Module):
    """Returns the state of its thread for work on ``device``."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def forward(self) -> dict[str, object]:
        """Return the `visible_state`."""
        return visible_state(self.device)


class StateChanger(nn.Module):
    """Changes the state of its thread and does not restore it; then raises ``error``, if any."""

    def __init__(
        self, changes: Collection[str], device: torch.device, error: Exception | None = None
    ) -> None:
        super().__init__()
        self.changes = changes
        self.device = device
        self.error = error

    def forward(self) -> None:
        """Make the changes."""
        for change in self.changes:
            CHANGES[change](self.device)
        if self.error is not None:
            raise self.error


def _autocast(device: torch.device) -> None:
    torch.set_autocast_enabled(device.type, True)
    torch.set_autocast_dtype(device.type, torch.bfloat16)


def _cpu_autocast(_: torch.device) -> None:
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)


#: The function that makes each change of the thread state, for a device.
CHANGES: Mapping[str, Callable[[torch.device], Any]] = MappingProxyType(
    {
        "grad mode": lambda _: torch.set_grad_enabled(not torch.is_grad_enabled()),
        "autocast": _autocast,
        "CPU autocast": _cpu_autocast,
        "autocast cache": lambda _: torch.set_autocast_cache_enabled(False),
        "default device": torch.set_default_device,
        "context variable": lambda _: CONTEXT_VARIABLE.set("changed"),
        "current device": lambda device: torch.accelerator.set_device_index(device.index),
        "current stream": lambda device: torch.accelerator.set_stream(torch.Stream(device)),
    }
)


def state_probes(topology: Topology, count: int) -> list[nn.Module]:
    """Return a `StateProbe` for each of the first ``count`` slots."""
    return [StateProbe(device) for device in topology.take(count)]
