"""Kinds that change the tensors of a result: values, memory, history, gradients and order."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from impl_tests.weekly.perturbations.calls import Call, map_tensors, modules_in, tensors_in
from impl_tests.weekly.perturbations.kinds.registry import add, of_result, of_tensors

__all__ = ["differ"]


def differ(tensor: Tensor) -> Tensor:
    """Return other values."""
    return ~tensor if tensor.dtype is torch.bool else tensor * 2 + 1


@of_tensors
def values(tensor: Tensor) -> Tensor:
    """Change all values."""
    return tensor * 2 if tensor.layout is not torch.strided else differ(tensor)


@of_result
def last_element(result: Any) -> Any:
    """Change the last element of the last tensor."""
    leaves, spec = pytree.tree_flatten(result)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.numel()]
    leaf = leaves[places[-1]]
    if leaf.layout is not torch.strided:
        leaves[places[-1]] = leaf * 2
    else:
        mask = torch.zeros(leaf.shape, dtype=torch.bool, device=leaf.device)
        mask.view(-1)[-1] = True
        leaves[places[-1]] = torch.where(mask, differ(leaf), leaf)
    return pytree.tree_unflatten(leaves, spec)


@of_tensors
def dtype(tensor: Tensor) -> Tensor:
    """Return another dtype."""
    return tensor.to(torch.float32 if tensor.dtype is not torch.float32 else torch.float64)


@of_tensors
def on_next_device(tensor: Tensor) -> Tensor:
    """Return the tensors on another device."""
    device = tensor.device
    if device.type == "cpu":
        return tensor.to(torch.accelerator.current_accelerator())
    return tensor.to(torch.device(device.type, (device.index or 0) ^ 1))


@of_tensors
def other_strides(tensor: Tensor) -> Tensor:
    """Return the tensors with reversed strides."""
    order = list(range(tensor.dim()))[::-1]
    found = tensor.permute(order).contiguous().permute(order)
    return found if found.stride() != tensor.stride() else tensor.contiguous()


@of_tensors
def plain(tensor: Tensor) -> Tensor:
    """Return plain tensors in place of parameters and subclasses."""
    return tensor.as_subclass(Tensor) if type(tensor) is not Tensor else tensor


@of_tensors
def dense(tensor: Tensor) -> Tensor:
    """Return dense tensors."""
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


@of_tensors
def flat(tensor: Tensor) -> Tensor:
    """Return tensors with one dimension."""
    return tensor.reshape(-1)


@of_tensors
def cloned(tensor: Tensor) -> Tensor:
    """Return clones."""
    return tensor.clone(memory_format=torch.preserve_format)


@of_tensors
def detached(tensor: Tensor) -> Tensor:
    """Return tensors without a history."""
    return tensor.detach()


@of_tensors
def requiring_grad(tensor: Tensor) -> Tensor:
    """Return leaves that require a gradient."""
    return tensor.detach().requires_grad_()


@of_tensors
def version_raised(tensor: Tensor) -> Tensor:
    """Raise the version counter of each tensor of the result."""
    with torch.no_grad():
        tensor.detach().mul_(1)
    return tensor


@of_result
def shared_memory(result: Any) -> Any:
    """Return tensors of equal shape, dtype and device that share memory with the first of them."""
    firsts: dict[Any, Tensor] = {}

    def share(tensor: Tensor) -> Tensor:
        key = tensor.shape, tensor.dtype, tensor.device
        return firsts.setdefault(key, tensor).view_as(tensor)

    return map_tensors(share, result)


@of_tensors
def late(tensor: Tensor) -> Tensor:
    """Copy the results on streams that no other stream waits for."""
    if tensor.device.type == "cpu":
        return tensor
    with torch.Stream(tensor.device):
        return tensor.clone()


def _of_gradients(change: Callable[[Tensor], Tensor]) -> None:
    """Add a change of the gradients that flow through the result."""

    def run(call: Call, word: str) -> Any:
        result = call.run()
        for tensor in _differentiable(result):
            if tensor.requires_grad:
                tensor.register_hook(change)  # type: ignore[no-untyped-call] # in torch
        return result

    add(change, run)


def _differentiable(result: Any) -> list[Tensor]:
    found = tensors_in(result)
    for module in modules_in(result):
        for member in module.modules():
            found += [*member.parameters(recurse=False), *_former_parameters(member)]
            found += [value for value in vars(member).values() if isinstance(value, Tensor)]
    return found


def _former_parameters(module: torch.nn.Module) -> list[Tensor]:
    return list(getattr(module, "_former_parameters", {}).values())


@_of_gradients
def gradient_doubled(grad: Tensor) -> Tensor:
    """Double the gradient."""
    return grad * 2


@_of_gradients
def gradient_zero(grad: Tensor) -> Tensor:
    """Set the gradient to zero."""
    return grad * 0
