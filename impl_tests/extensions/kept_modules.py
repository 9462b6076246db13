"""Modules, optimizers and wrappers of the tests of kept replicas and kept copies."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import impl
from spec_tests.machine.devices import Topology


class Doubled(TorchDispatchMode):  # type: ignore[no-untyped-call] # in torch
    """A mode in which copies have twice the values."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.mul_(2) if "copy_" in str(func) else result


class UnversionedSGD(torch.optim.Optimizer):
    """Gradient descent that increases no version counter, like the fused optimizers of PyTorch."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1.0, **_: object) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # no closure is called
        """Subtract the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.sub_(parameter.grad, alpha=group["lr"])


def network() -> nn.Module:
    """Return a network with a batch norm and a dropout, in evaluation mode."""
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(1.0))).eval()


def recording_data_parallel(created: list[Any]) -> Any:
    """Return a DataParallel class whose replicate appends devices and weakrefs to ``created``."""

    class Recording(impl.DataParallel[nn.Module]):
        def replicate(self, module: nn.Module, device_ids: Sequence[Any]) -> list[nn.Module]:
            replicas = super().replicate(module, device_ids)
            created.append((list(device_ids), [weakref.ref(replica) for replica in replicas]))
            return replicas

    return Recording


def wrapped(
    topology: Topology,
    created: list[Any] | None = None,
    module: nn.Module | None = None,
    devices: int = 3,
) -> tuple[Any, Tensor]:
    """Return a wrapper of ``module``, and a batch on its first device."""
    placed = topology.take(devices)
    kind = impl.DataParallel if created is None else recording_data_parallel(created)
    return kind((module or network()).to(placed[0]), placed), torch.rand(6, 2).to(placed[0])
