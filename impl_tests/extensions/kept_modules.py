"""Modules, optimizers and wrappers of the tests of kept replicas and kept copies."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import impl
from spec_tests.machine.devices import Topology


class FrozenLayer(nn.Linear):
    """A frozen layer that appends the weight of each forward to ``seen``."""

    def __init__(self, size: int = 2) -> None:
        super().__init__(size, size)
        self.requires_grad_(False)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        self.seen.append(self.weight)
        return super().forward(x)


class Scale:
    """State beside a tensor, which is copied with the tensor."""

    def __init__(self, tensor: Tensor, factor: float = 1.0) -> None:
        self.tensor, self.factor = tensor, factor

    def to(self, _: object) -> None:
        """Make this an object that belongs to a device."""
        raise NotImplementedError


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


def addresses(tensors: Iterable[Tensor]) -> set[tuple[torch.device, int]]:
    """Return the devices and addresses of tensors."""
    return {(tensor.device, tensor.data_ptr()) for tensor in tensors}


def on_cpu_replicas(*layers: nn.Module, kind: Any = impl.DataParallel) -> Any:
    """Return a wrapper of two CPU devices that keeps copies of frozen parameters."""
    return kind(nn.Sequential(*layers), ["cpu", "cpu"], cache_frozen_parameters=True)


#: The batch of `replica_weights`.
X = torch.ones(4, 2)


def replica_weights(net: nn.Module, layer: FrozenLayer) -> list[Tensor]:
    """Return the weights of ``layer`` in one forward of ``net``."""
    layer.seen.clear()
    net(X)
    return layer.seen.copy()


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
