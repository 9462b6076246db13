"""replicate, which copies one parameter or buffer at a time."""

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike, broadcast_coalesced, copy_to
from spec_tests.oracle.functions import Broadcast

_Copy = TypeVar("_Copy")


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False
) -> list[nn.Module]:
    """Return a replica for each device. Modules and tensors that are shared stay shared."""
    return [
        _Replicator(as_device(device), detach, index == 0).replicate(network)
        for index, device in enumerate(devices)
    ]


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], detach: bool = False
) -> list[list[Tensor]]:
    """Return a list of copies for each device, or an empty list if there are no tensors."""
    if not tensors:
        return []
    if detach:
        return broadcast_coalesced(tensors, devices)
    copies = iter(Broadcast.apply(devices, *tensors))
    return [[next(copies) for _ in tensors] for _ in devices]


class _Replicator:
    """Makes one replica. It copies a shared module or tensor only once.

    Args:
        device: The device of the replica.
        detach: Whether the replica is detached.
        is_first: Whether this is the first replica, which shares the memory of the module.
    """

    def __init__(self, device: torch.device, detach: bool, is_first: bool) -> None:
        self.device = device
        self.detach = detach
        self.is_first = is_first
        self._copies: dict[int, Any] = {}

    def replicate(self, module: nn.Module) -> nn.Module:
        """Return the replica of ``module`` and of its descendants."""
        if id(module) in self._copies:
            return self._copies[id(module)]  # type: ignore[no-any-return]  # a module
        if isinstance(module, torch.jit.ScriptModule):
            return self._copy_once(module, lambda: ScriptReplica(module, self))
        hook: Callable[[], Any] = module._replicate_for_data_parallel
        replica = self._copy_once(module, hook)
        replica._former_parameters = {}
        for name, child in module._modules.items():
            replica._modules[name] = None if child is None else self.replicate(child)
        for name, parameter in module._parameters.items():
            self._set_parameter(replica, name, parameter)
        for name, buffer in module._buffers.items():
            replica._buffers[name] = None if buffer is None else self._copy_buffer(buffer)
        return replica  # type: ignore[no-any-return]  # a module

    def tensors_of(self, module: nn.Module) -> dict[str, Tensor]:
        """Return, by name, copies of parameters and buffers of ``module``, not of its children."""
        parameters, buffers = (
            dict(named(recurse=False)) for named in (module.named_parameters, module.named_buffers)
        )
        copies = {name: self._copy_parameter(each) for name, each in parameters.items()}
        return copies | {name: self._copy_buffer(each) for name, each in buffers.items()}

    def _set_parameter(self, replica: Any, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None:
            replica._parameters[name] = None
            return
        copy = self._copy_parameter(parameter)
        replica._parameters.pop(name, None)
        setattr(replica, name, copy)
        replica._former_parameters[name] = copy

    def _copy_parameter(self, parameter: Tensor) -> Tensor:
        if self.detach and self.is_first:
            return parameter
        return self._copy_once(parameter, lambda: self._copy_tensor(parameter))

    def _copy_buffer(self, buffer: Tensor) -> Tensor:
        if buffer.requires_grad and not self.detach:
            return self._copy_once(buffer, lambda: self._copy_tensor(buffer))
        if self.is_first:
            return buffer
        return self._copy_once(buffer, lambda: copy_to(buffer.detach(), self.device))

    def _copy_tensor(self, tensor: Tensor) -> Tensor:
        if not self.is_first:
            return copy_to(tensor.detach() if self.detach else tensor, self.device)
        # Outside grad mode, a view of a parameter would still require a gradient.
        return tensor.view_as(tensor) if torch.is_grad_enabled() else tensor.detach()

    def _copy_once(self, source: object, make_copy: Callable[[], _Copy]) -> _Copy:
        if id(source) not in self._copies:
            self._copies[id(source)] = make_copy()
        copy: _Copy = self._copies[id(source)]
        return copy


class ScriptReplica(nn.Module):
    """A replica of a script module. It holds copies of the tensors and calls the script module.

    The tensors of a script module cannot be replaced, so forward moves its input to the device of
    the script module. The first replica uses the buffers of the script module. In other replicas,
    forward writes the replica's buffers into the script module, and reads them back afterwards.
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
        """Return the output of the script module for ``x``, on the device of ``x``."""
        source, replicator = self.__dict__["_source"], self.__dict__["_replicator"]
        device = next((each.device for each in source.parameters()), x.device)
        grad = torch.is_grad_enabled() and not (replicator.detach and x.device != device)
        with self._lock, torch.set_grad_enabled(grad):
            if replicator.is_first:
                return source(x.to(device))  # type: ignore[no-any-return]  # a tensor
            buffers = dict(source.named_buffers())
            copies: dict[str, Any] = {name: operator.attrgetter(name)(self) for name in buffers}
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            _write_values(buffers, copies)
            try:
                return source(x.to(device)).to(x.device)  # type: ignore[no-any-return]  # a tensor
            finally:
                _write_values(copies, buffers)
                _write_values(buffers, before)


def _write_values(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy ``values`` into ``tensors`` by name, without increasing their version counters."""
    for name, tensor in tensors.items():
        tensor.data.copy_(values[name])
