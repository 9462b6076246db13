"""Kinds that change the memory, version counters or history of a result."""

from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors, tensors_in
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
def aliased(tensor: Tensor) -> Tensor:
    """Return new tensors with the same memory, version counter and ``requires_grad``."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


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
def with_history(tensor: Tensor) -> Tensor:
    """Return tensors with a history."""
    if tensor.requires_grad or not tensor.is_floating_point():
        return tensor
    with torch.enable_grad():
        return tensor.detach().requires_grad_() * 1


@KINDS.tensors
def version_raised(tensor: Tensor) -> Tensor:
    """Raise the version counter of each tensor of the result."""
    with torch.no_grad():
        tensor.detach().mul_(1)
    return tensor


@KINDS.around
def version_kept(call: Call) -> Any:
    """Set the version counters of the result and of the arguments to those before the call."""
    before = [(tensor, tensor._version) for tensor in call.tensors() if not tensor.is_inference()]
    result = call.run()
    for tensor, version in before:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    return result


@KINDS.result
def shared_memory(result: Any) -> Any:
    """Return tensors of equal shape, dtype and device that share memory with the first of them."""
    firsts: dict[Any, Tensor] = {}

    def share(tensor: Tensor) -> Tensor:
        key = tensor.shape, tensor.dtype, tensor.device
        return firsts.setdefault(key, tensor).view_as(tensor)

    return map_tensors(share, result)


@KINDS.result
def one_buffer(result: Any) -> Any:
    """Return copies that are views of one buffer for each device and dtype."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors_in(result):
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    views: dict[int, Tensor] = {}
    for tensors in groups.values():
        buffer = torch.cat([tensor.reshape(-1) for tensor in tensors])
        parts = torch.split_with_sizes(buffer, [tensor.numel() for tensor in tensors])
        views |= {id(t): part.view(t.shape) for t, part in zip(tensors, parts, strict=True)}
    return map_tensors(lambda tensor: views[id(tensor)], result)
