"""Copies of a module, made entry by entry."""

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike, broadcast_coalesced, copied
from spec_tests.oracle.functions import Broadcast

_Made = TypeVar("_Made")


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False
) -> list[nn.Module]:
    """One copy of the module a device; what is shared in it is shared in each copy."""
    places = [as_device(device) for device in devices]
    return [_Copy(each, detach, index == 0).of(network) for index, each in enumerate(places)]


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], detach: bool = False
) -> list[list[Tensor]]:
    """All tensors for each device; no list where there are no tensors."""
    if not tensors:
        return []
    if detach:
        return broadcast_coalesced(tensors, devices)
    copies = iter(Broadcast.apply(devices, *tensors))
    return [[next(copies) for _ in tensors] for _ in devices]


class _Copy:
    """Makes one replica; everything in it once.

    Args:
        device: Where it is.
        detach: Whether it has no history.
        first: Whether it is on the module's own device and shares its memory.
    """

    def __init__(self, device: torch.device, detach: bool, first: bool) -> None:
        self.device = device
        self.detach = detach
        self.first = first
        self._made: dict[int, Any] = {}

    def of(self, module: nn.Module) -> nn.Module:
        """The copy of one module and of all below it."""
        if id(module) in self._made:
            return self._made[id(module)]  # type: ignore[no-any-return]  # a module
        if isinstance(module, torch.jit.ScriptModule):
            return self._once(module, lambda: Scripted(module, self))
        hook: Callable[[], Any] = module._replicate_for_data_parallel
        replica = self._once(module, hook)
        replica._former_parameters = {}
        for name, child in module._modules.items():
            replica._modules[name] = None if child is None else self.of(child)
        for name, parameter in module._parameters.items():
            self._give(replica, name, parameter)
        for name, buffer in module._buffers.items():
            replica._buffers[name] = None if buffer is None else self._buffer(buffer)
        return replica  # type: ignore[no-any-return]  # a module

    def tensors_of(self, module: nn.Module) -> dict[str, Tensor]:
        """The copies of a module's own parameters and buffers, by name."""
        parameters, buffers = (
            dict(named(recurse=False)) for named in (module.named_parameters, module.named_buffers)
        )
        found = {name: self._parameter(each) for name, each in parameters.items()}
        return found | {name: self._buffer(each) for name, each in buffers.items()}

    def _give(self, replica: Any, name: str, parameter: nn.Parameter | None) -> None:
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
        return self._once(parameter, lambda: self._copied(parameter))

    def _buffer(self, buffer: Tensor) -> Tensor:
        if buffer.requires_grad and not self.detach:
            return self._once(buffer, lambda: self._copied(buffer))
        if self.first:
            return buffer
        return self._once(buffer, lambda: copied(buffer.detach(), self.device))

    def _copied(self, tensor: Tensor) -> Tensor:
        if not self.first:
            return copied(tensor.detach() if self.detach else tensor, self.device)
        # A view that is made outside grad mode requires a gradient all the same.
        return tensor.view_as(tensor) if torch.is_grad_enabled() else tensor.detach()

    def _once(self, source: object, make: Callable[[], _Made]) -> _Made:
        if id(source) not in self._made:
            self._made[id(source)] = make()
        found: _Made = self._made[id(source)]
        return found


class Scripted(nn.Module):
    """Stands for a replica of a script module: it has its tensors, and the module computes.

    A module that is scripted cannot be given other tensors, so rows travel to where it is. The
    first replica shares the module's buffers; each other one has values of its own, which the
    module holds while it computes for it.
    """

    _turn = threading.Lock()

    def __init__(self, module: nn.Module, copy: _Copy) -> None:
        super().__init__()
        self.training = module.training
        self.__dict__.update(copy.tensors_of(module), _source=module, _copy=copy)
        for name, child in module.named_children():
            setattr(self, name, copy.of(child))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the module for the same rows."""
        source, copy = self.__dict__["_source"], self.__dict__["_copy"]
        home = next((each.device for each in source.parameters()), x.device)
        history = torch.is_grad_enabled() and not (copy.detach and x.device != home)
        with self._turn, torch.set_grad_enabled(history):
            if copy.first:
                return source(x.to(home))  # type: ignore[no-any-return]  # a tensor
            buffers = dict(source.named_buffers())
            own: dict[str, Any] = {name: operator.attrgetter(name)(self) for name in buffers}
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            _write(buffers, own)
            try:
                return source(x.to(home)).to(x.device)  # type: ignore[no-any-return]  # a tensor
            finally:
                _write(own, buffers)
                _write(buffers, before)


def _write(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Set values by name; backward need not know."""
    for name, tensor in tensors.items():
        tensor.data.copy_(values[name])
