"""The modules that all threads of a round share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import impl
from impl.extras import hold

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


class _CountingWrapper(impl.DataParallel[nn.Module]):
    """A wrapper that counts the calls of ``replicate``."""

    replications = 0

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        self.replications += 1
        return super().replicate(module, device_ids)


class SharedModules:
    """A module and three DataParallel wrappers.

    Args:
        devices: The devices of the wrappers.

    Attributes:
        net: The wrapped module. No thread changes it.
        wrapper: DataParallel around ``net``.
        held: DataParallel around another module, for blocks of ``hold``.
        frozen: DataParallel that keeps copies of the parameters of a frozen module.
    """

    def __init__(self, devices: list[torch.device]) -> None:
        self.devices = devices
        self.net = build_net(devices[0])
        self.wrapper = impl.DataParallel(self.net, devices)
        self.held = _CountingWrapper(build_net(devices[0]).eval(), devices)
        self.frozen = impl.DataParallel(
            build_net(devices[0]).requires_grad_(False), devices, cache_frozen_parameters=True
        )

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold ``held`` in a ``with`` block. Check that its replicas are built at most once."""
        self.held.replications = 0
        with self.held.hold():
            yield
        count = self.held.replications
        assert count <= 1, f"one hold() built replicas {count} times"

    def check_caches_are_empty(self) -> None:
        """Raise an AssertionError if impl still caches replicas."""
        caches = hold._caches
        assert not caches, f"{len(caches)} wrappers have cached replicas outside of hold()"
