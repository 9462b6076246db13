"""Replicas whose tensors are aligned as new tensors are.

Many copies of parameters share one piece of memory. Where each begins in it differs between impl
and torch.nn.parallel, and the CPU's product of a matrix and a vector rounds by the address of the
matrix.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["aligned"]

#: Bytes. The addresses of new tensors in host memory are multiples of it.
_ALIGNMENT = 64


def aligned(wrapper: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass of ``wrapper``, a DataParallel, whose replicas have aligned tensors."""

    class Aligned(wrapper):  # type: ignore[misc, valid-type] # the base is an argument
        def replicate(self, module: nn.Module, device_ids: Sequence[int]) -> list[nn.Module]:
            replicas: list[nn.Module] = super().replicate(module, device_ids)
            for replica in replicas[1:]:  # The first has the module's own tensors.
                _align(replica)
            return replicas

    return Aligned


def _align(replica: nn.Module) -> None:
    """Clone the tensors of ``replica`` that are not aligned, tied ones once."""
    clones: dict[int, Tensor] = {}

    def replaced(value: Any) -> Any:
        if isinstance(value, list):  # the weights of a recurrent module, once more
            return [replaced(member) for member in value]
        if not _is_misaligned(value):
            return value
        if id(value) not in clones:
            clones[id(value)] = value.clone()
        return clones[id(value)]

    for module in replica.modules():
        for names in (vars(module), module._parameters, module._buffers):
            names.update({name: replaced(value) for name, value in names.items()})


def _is_misaligned(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return value.data_ptr() % _ALIGNMENT != 0
