"""Kinds that change the values, dtype, device, strides or shape of a result."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS", "differ"]

KINDS = Registry()


def differ(tensor: Tensor) -> Tensor:
    """Return other values."""
    return ~tensor if tensor.dtype is torch.bool else tensor * 2 + 1


@KINDS.tensors
def values(tensor: Tensor) -> Tensor:
    """Change all values."""
    return tensor * 2 if tensor.layout is not torch.strided else differ(tensor)


@KINDS.result
def last_element(result: Any) -> Any:
    """Change the last element of the last tensor."""
    return _change_nth(result, -1)


def _change_nth(result: Any, index: int) -> Any:
    leaves, spec = pytree.tree_flatten(result)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.numel()]
    leaf = leaves[places[index]]
    if leaf.layout is not torch.strided:
        leaves[places[index]] = leaf * 2
    else:
        mask = torch.zeros(leaf.shape, dtype=torch.bool, device=leaf.device)
        mask.view(-1)[-1] = True
        leaves[places[index]] = torch.where(mask, differ(leaf), leaf)
    return pytree.tree_unflatten(leaves, spec)


@KINDS.result
def tree_reversed(result: Any) -> Any:
    """Return the leaves in reverse order."""
    leaves, spec = pytree.tree_flatten(result)
    return pytree.tree_unflatten(leaves[::-1], spec)


@KINDS.tensors
def dtype(tensor: Tensor) -> Tensor:
    """Return another dtype."""
    return tensor.to(torch.float32 if tensor.dtype is not torch.float32 else torch.float64)


@KINDS.tensors
def on_next_device(tensor: Tensor) -> Tensor:
    """Return the tensors on another device."""
    device = tensor.device
    if device.type == "cpu":
        return tensor.to(torch.accelerator.current_accelerator())
    return tensor.to(torch.device(device.type, (device.index or 0) ^ 1))


@KINDS.tensors
def other_strides(tensor: Tensor) -> Tensor:
    """Return the tensors with reversed strides."""
    order = list(range(tensor.dim()))[::-1]
    found = tensor.permute(order).contiguous().permute(order)
    return found if found.stride() != tensor.stride() else tensor.contiguous()


@KINDS.tensors
def parameters(tensor: Tensor) -> Tensor:
    """Return parameters."""
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)


@KINDS.tensors
def plain(tensor: Tensor) -> Tensor:
    """Return plain tensors in place of parameters and subclasses."""
    return tensor.as_subclass(Tensor) if type(tensor) is not Tensor else tensor


@KINDS.tensors
def dense(tensor: Tensor) -> Tensor:
    """Return dense tensors."""
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


@KINDS.tensors
def flat(tensor: Tensor) -> Tensor:
    """Return tensors with one dimension."""
    return tensor.reshape(-1)


@KINDS.tensors
def extra_dimension(tensor: Tensor) -> Tensor:
    """Return tensors with one more dimension."""
    return tensor.unsqueeze(0)
