"""What the threads of one round use at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Shared", "net", "numbered"]


def numbered(*shape: int, device: torch.device | str = "cpu", start: int = 0) -> Tensor:
    """Consecutive whole numbers, with which sums are exact in any order."""
    count = torch.Size(shape).numel()
    return torch.arange(start, start + count, dtype=torch.float64).reshape(shape).to(device)


def net(device: torch.device | str) -> nn.Sequential:
    """A module with parameters, a buffer and modules below it, all whole numbers."""
    made = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), _Shift(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(numbered(*parameter.shape) % 5 - 2)
    return made.to(device)


class _Shift(nn.Module):
    """Adds a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.ones(4))
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class Shared:
    """One module and its wrapper, and blocks of ``hold`` that many threads enter.

    Args:
        name: The package that is tried.
        devices: Where.

    Attributes:
        parallel: The package.
        net: The module; nobody changes it.
        wrapper: Its wrapper.
        made: How many times replicas were made for blocks of ``hold``.
    """

    def __init__(self, name: str, devices: list[torch.device]) -> None:
        self.parallel: Any = import_module(name)
        self.devices = devices
        self.net = net(devices[0])
        self.wrapper = self.parallel.DataParallel(self.net, devices)
        self.made = 0
        self._counting = _counting(self.parallel, self)
        self.held = self._counting(net(devices[0]).eval(), devices)
        self._blocks = 0
        self._lock = threading.Lock()

    def part(self, name: str) -> ModuleType:
        """A module of the package."""
        return import_module(f"{self.parallel.__name__}.{name}")

    @contextmanager
    def held_by_all(self) -> Iterator[None]:
        """A block of ``hold`` around a whole round, in which all threads' blocks stand."""
        self.made = 0
        with self.held.hold():
            yield
        assert self.made <= 1, f"replicas were made {self.made} times for one block of hold()"

    def check_nothing_is_left(self) -> None:
        """Fail if something of impl still knows of a call."""
        caches = self.part("_replica.cache")._caches
        assert not caches, f"{len(caches)} wrappers are still held, and no block lasts"


def _counting(parallel: Any, shared: Shared) -> Any:
    class Counting(parallel.DataParallel):  # type: ignore[misc] # whichever package it is of
        def replicate(self, module: nn.Module, device_ids: Any) -> Any:
            shared.made += 1
            return super().replicate(module, device_ids)

    return Counting
