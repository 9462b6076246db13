"""A simple and slow wrapper that copies its module for each chunk, and calls copy after copy."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from spec_tests.oracle._devices import leave

#: Attributes of a module that a copy does not share. The last one lists parameters.
_STATE = ("_parameters", "_buffers", "_modules", "_flat_weights")


class DataParallel(nn.Module):
    """A module that applies ``module`` to chunks along ``dim`` on several devices."""

    def __init__(
        self, module: nn.Module, devices: Sequence[torch.device], output: torch.device, dim: int
    ) -> None:
        super().__init__()
        self.module, self.devices, self.output, self.dim = module, devices, output, dim

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the joined outputs. If calls fail, raise the first error after the last call."""
        outputs, errors, is_alone = [], [], len(self.devices) == 1
        for index, chunk in enumerate(_chunks((args, kwargs), self.devices, self.dim)):
            device = self.devices[index]
            try:
                with nullcontext() if is_alone else _current(device):
                    copied = _copy(self.module, device, first=index == 0)
                    outputs.append((self.module if is_alone else copied)(*chunk[0], **chunk[1]))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return pytree.tree_map(lambda *each: _join(each, self.output, self.dim), *outputs)


def _chunks(arguments: Any, devices: Sequence[torch.device], dim: int) -> Iterator[Any]:
    """Yield the arguments for each device. Values that are no tensors are for all devices."""
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, Tensor)]
    count = len(tensors[0].chunk(len(devices), dim)) if tensors else len(devices)
    for i, device in enumerate(devices[:count]):
        yield pytree.tree_map_only(
            Tensor, partial(_chunk, i=i, count=len(devices), device=device, dim=dim), arguments
        )


def _chunk(tensor: Tensor, *, i: int, count: int, device: torch.device, dim: int) -> Tensor:
    return leave(tensor.chunk(count, dim)[i], device).to(device)


def _copy(module: nn.Module, device: torch.device, *, first: bool) -> nn.Module:
    """Return a copy whose parameters are differentiable copies. The first shares the buffers."""
    memo: dict[int, Any] = {}
    for each in module.modules():
        for name, value in vars(each).items():
            if name not in _STATE and not isinstance(value, MethodType):
                memo[id(value)] = value
    for tensor in (*module.buffers(), *module.parameters()):
        memo[id(tensor)] = leave(tensor, device).to(device, copy=True)
    for buffer in module.buffers():
        if not (buffer.requires_grad and torch.is_grad_enabled()):
            memo[id(buffer)] = (
                buffer if first else leave(buffer.detach(), device).to(device, copy=True)
            )
    return copy.deepcopy(module, memo)


def _join(chunks: Sequence[Tensor], device: torch.device, dim: int) -> Tensor:
    with torch._C._DisableAutocast():  # it would change the dtype
        return torch.cat([leave(chunk, device).to(device) for chunk in chunks], dim)


def _current(device: torch.device) -> AbstractContextManager[None]:
    return nullcontext() if device.type == "cpu" else torch.accelerator.device_index(device.index)
