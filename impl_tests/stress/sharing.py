"""The modules that all threads of a round share."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SharedModules", "Total", "build_net", "create_tensor", "flat_gradient"]


def create_tensor(*shape: int, device: torch.device | str = "cpu", start: int = 0) -> Tensor:
    """Return a tensor of consecutive integers as floats; sums of them are exact in any order."""
    count = torch.Size(shape).numel()
    return torch.arange(start, start + count, dtype=torch.float64).reshape(shape).to(device)


def build_net(device: torch.device | str) -> nn.Sequential:
    """Return a module with a buffer and submodules; all parameter values are integers."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), _AddBuffer(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(create_tensor(*parameter.shape) % 5 - 2)
    return module.to(device)


class Total(nn.Module):
    """A criterion that returns the sum of the output."""

    reduction = "sum"

    def forward(self, output: Tensor, _: object) -> Tensor:
        """Return the sum."""
        return output.sum()


def flat_gradient(module: nn.Module) -> Tensor:
    """Return the gradients of all parameters in one dimension."""
    gradients = [each.grad for each in module.parameters() if each.grad is not None]
    assert len(gradients) == len([*module.parameters()])
    return torch.cat([gradient.flatten() for gradient in gradients])


class _AddBuffer(nn.Module):
    """A module that adds its buffer to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.ones(4))
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class SharedModules:
    """The package under test, a module, and three DataParallel wrappers.

    Args:
        name: The name of the package under test.
        devices: The devices of the wrappers.

    Attributes:
        parallel: The package under test.
        net: The wrapped module. No thread changes it.
        wrapper: DataParallel around ``net``.
        held: DataParallel around another module, for blocks of ``hold``.
        frozen: DataParallel that keeps copies of the parameters of a frozen module.
        replications: The number of calls of ``held.replicate``.
    """

    def __init__(self, name: str, devices: list[torch.device]) -> None:
        self.parallel: Any = import_module(name)
        self.devices = devices
        self.net = build_net(devices[0])
        self.wrapper = self.parallel.DataParallel(self.net, devices)
        self.replications = 0
        self.held = _make_counting_class(self.parallel, self)(
            build_net(devices[0]).eval(), devices
        )
        self.frozen = self.parallel.DataParallel(
            build_net(devices[0]).requires_grad_(False), devices, cache_frozen_parameters=True
        )

    def import_module(self, name: str) -> ModuleType:
        """Return the module ``name`` of the package under test."""
        return import_module(f"{self.parallel.__name__}.{name}")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold ``held`` in a ``with`` block. Check that its replicas are built at most once."""
        self.replications = 0
        with self.held.hold():
            yield
        assert self.replications <= 1, f"one hold() built replicas {self.replications} times"

    def check_caches_are_empty(self) -> None:
        """Raise an AssertionError if impl still caches replicas."""
        caches = self.import_module("extras.hold")._caches
        assert not caches, f"{len(caches)} wrappers have cached replicas outside of hold()"


def _make_counting_class(parallel: Any, shared: SharedModules) -> Any:
    """Return a DataParallel class whose ``replicate`` increments ``shared.replications``."""

    class Counting(parallel.DataParallel):  # type: ignore[misc] # the base is a variable
        def replicate(self, module: nn.Module, device_ids: Any) -> Any:
            shared.replications += 1
            return super().replicate(module, device_ids)

    return Counting
