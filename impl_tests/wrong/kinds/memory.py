"""Kinds that change the memory, version counters or history of a result."""

from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import map_tensors
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


@KINDS.tensors
def cloned(tensor: Tensor) -> Tensor:
    """Return clones."""
    return tensor.clone(memory_format=torch.preserve_format)


@KINDS.tensors
def cloned_and_detached(tensor: Tensor) -> Tensor:
    """Return clones with the same ``requires_grad`` but without a history."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


@KINDS.tensors
def viewed(tensor: Tensor) -> Tensor:
    """Return views in place of the tensors themselves."""
    return tensor.view_as(tensor)


@KINDS.tensors
def detached(tensor: Tensor) -> Tensor:
    """Return tensors without a history."""
    return tensor.detach()


@KINDS.tensors
def own_version(tensor: Tensor) -> Tensor:
    """Return tensors with the same memory and another version counter."""
    return tensor.data.requires_grad_(tensor.requires_grad)


@KINDS.tensors
def requiring_grad(tensor: Tensor) -> Tensor:
    """Return leaves that require a gradient."""
    return tensor.detach().requires_grad_() if not tensor.requires_grad else tensor


@KINDS.tensors
def version_raised(tensor: Tensor) -> Tensor:
    """Raise the version counter of each tensor of the result."""
    with torch.no_grad():
        tensor.detach().mul_(1)
    return tensor


@KINDS.result
def shared_memory(result: Any) -> Any:
    """Return tensors of equal shape, dtype and device that share memory with the first of them."""
    firsts: dict[Any, Tensor] = {}

    def share(tensor: Tensor) -> Tensor:
        key = tensor.shape, tensor.dtype, tensor.device
        return firsts.setdefault(key, tensor).view_as(tensor)

    return map_tensors(share, result)
