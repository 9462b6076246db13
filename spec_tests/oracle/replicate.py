"""replicate, one parameter and buffer at a time."""

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike, broadcast_coalesced, copy_to
from spec_tests.oracle.functions import Broadcast

_Made = TypeVar("_Made")


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False
) -> list[nn.Module]:
    """Return a replica for each device; shared modules and tensors stay shared in it."""
    places = [as_device(device) for device in devices]
    return [
        _Replicator(each, detach, index == 0).replicate(network)
        for index, each in enumerate(places)
    ]


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], detach: bool = False
) -> list[list[Tensor]]:
    """Return the copies of all tensors for each device; an empty list without tensors."""
    if not tensors:
        return []
    if detach:
        return broadcast_coalesced(tensors, devices)
    copies = iter(Broadcast.apply(devices, *tensors))
    return [[next(copies) for _ in tensors] for _ in devices]


class _Replicator:
    """Makes one replica, and copies each shared module and tensor once.

    Args:
        device: The device of the replica.
        detach: Whether the replica is detached.
        first: Whether the replica shares the memory of the module.
    """

    def __init__(self, device: torch.device, detach: bool, first: bool) -> None:
        self.device = device
        self.detach = detach
        self.first = first
        self._made: dict[int, Any] = {}

    def replicate(self, module: nn.Module) -> nn.Module:
        """Return the replica of a module with its descendants."""
        if id(module) in self._made:
            return self._made[id(module)]  # type: ignore[no-any-return]  # a module
        if isinstance(module, torch.jit.ScriptModule):
            return self._cached(module, lambda: ScriptReplica(module, self))
        hook: Callable[[], Any] = module._replicate_for_data_parallel
        replica = self._cached(module, hook)
        replica._former_parameters = {}
        for name, child in module._modules.items():
            replica._modules[name] = None if child is None else self.replicate(child)
        for name, parameter in module._parameters.items():
            self._set_parameter(replica, name, parameter)
        for name, buffer in module._buffers.items():
            replica._buffers[name] = None if buffer is None else self._buffer(buffer)
        return replica  # type: ignore[no-any-return]  # a module

    def tensors_of(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the copies of a module's own parameters and buffers by name."""
        parameters, buffers = (
            dict(named(recurse=False)) for named in (module.named_parameters, module.named_buffers)
        )
        found = {name: self._parameter(each) for name, each in parameters.items()}
        return found | {name: self._buffer(each) for name, each in buffers.items()}

    def _set_parameter(self, replica: Any, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None:
            replica._parameters[name] = None
            return
        copy = self._parameter(parameter)
        replica._parameters.pop(name, None)
        setattr(replica, name, copy)
        replica._former_parameters[name] = copy

    def _parameter(self, parameter: Tensor) -> Tensor:
        if self.detach and self.first:
            return parameter
        return self._cached(parameter, lambda: self._copied(parameter))

    def _buffer(self, buffer: Tensor) -> Tensor:
        if buffer.requires_grad and not self.detach:
            return self._cached(buffer, lambda: self._copied(buffer))
        if self.first:
            return buffer
        return self._cached(buffer, lambda: copy_to(buffer.detach(), self.device))

    def _copied(self, tensor: Tensor) -> Tensor:
        if not self.first:
            return copy_to(tensor.detach() if self.detach else tensor, self.device)
        # A view of a parameter requires a gradient even outside grad mode, so detach there.
        return tensor.view_as(tensor) if torch.is_grad_enabled() else tensor.detach()

    def _cached(self, source: object, make: Callable[[], _Made]) -> _Made:
        if id(source) not in self._made:
            self._made[id(source)] = make()
        found: _Made = self._made[id(source)]
        return found


class ScriptReplica(nn.Module):
    """A replica of a script module. It holds copies of the tensors; the module computes.

    The tensors of a script module cannot be replaced, so forward moves its input to the device of
    the module. The first replica shares the module's buffers. The others have their own values,
    which forward writes to the module and reads back.
    """

    _lock = threading.Lock()

    def __init__(self, module: nn.Module, replicator: _Replicator) -> None:
        super().__init__()
        self.training = module.training
        tensors = replicator.tensors_of(module)
        self.__dict__.update(tensors, _source=module, _replicator=replicator)
        for name, child in module.named_children():
            setattr(self, name, replicator.replicate(child))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the module for the same rows."""
        source, replicator = self.__dict__["_source"], self.__dict__["_replicator"]
        device = next((each.device for each in source.parameters()), x.device)
        grad = torch.is_grad_enabled() and not (replicator.detach and x.device != device)
        with self._lock, torch.set_grad_enabled(grad):
            if replicator.first:
                return source(x.to(device))  # type: ignore[no-any-return]  # a tensor
            buffers = dict(source.named_buffers())
            own: dict[str, Any] = {name: operator.attrgetter(name)(self) for name in buffers}
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            _write(buffers, own)
            try:
                return source(x.to(device)).to(x.device)  # type: ignore[no-any-return]  # a tensor
            finally:
                _write(own, buffers)
                _write(buffers, before)


def _write(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values by name, without a version bump that backward would refuse."""
    for name, tensor in tensors.items():
        tensor.data.copy_(values[name])
