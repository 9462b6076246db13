"""Modules that read or change the state of the thread that runs them."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.capabilities import offers
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.thread_state import CONTEXT_VARIABLE, visible_state


class StateProbe(nn.Module):
    """A module that returns ``visible_state(device)``, called in the thread that runs it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def forward(self) -> dict[str, object]:
        """Return the state of the calling thread."""
        return visible_state(self.device)


class StateChanger(nn.Module):
    """A module that changes the state of its thread, does not restore it, and may raise.

    Args:
        changes: Keys of `CHANGES`.
        device: The argument of each change.
        error: The exception that forward raises after the changes, if any.
    """

    def __init__(
        self, changes: Collection[str], device: torch.device, error: Exception | None = None
    ) -> None:
        super().__init__()
        self.changes = changes
        self.device = device
        self.error = error

    def forward(self) -> None:
        """Make the changes, and raise the error if there is one."""
        for change in self.changes:
            CHANGES[change](self.device)
        if self.error is not None:
            raise self.error


def _enable_autocast(device: torch.device) -> None:
    torch.set_autocast_enabled(device.type, True)
    torch.set_autocast_dtype(device.type, torch.bfloat16)


def _change_stream(device: torch.device) -> None:
    if offers("new-streams"):
        torch.accelerator.set_stream(torch.Stream(device))


def _enable_cpu_autocast(_: torch.device) -> None:
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)


#: Name of a change of the thread's state -> the function that makes it, given a device.
CHANGES: Mapping[str, Callable[[torch.device], Any]] = MappingProxyType(
    {
        "grad mode": lambda _: torch.set_grad_enabled(not torch.is_grad_enabled()),
        "autocast": _enable_autocast,
        "CPU autocast": _enable_cpu_autocast,
        "autocast cache": lambda _: torch.set_autocast_cache_enabled(False),
        "default device": torch.set_default_device,
        "context variable": lambda _: CONTEXT_VARIABLE.set("changed"),
        "current device": lambda device: torch.accelerator.set_device_index(device.index),
        "current stream": _change_stream,
    }
)


def state_probes(topology: Topology, count: int) -> list[nn.Module]:
    """Return a `StateProbe` for each of the first ``count`` devices of the topology."""
    return [StateProbe(device) for device in topology.take(count)]
