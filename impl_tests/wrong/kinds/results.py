"""Kinds that change the result: values, dtype, memory, container, order."""

import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from impl_tests.wrong.calls import Call, map_tensors, tensors_in
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _differ(tensor: Tensor) -> Tensor:
    """Return other values."""
    return ~tensor if tensor.dtype is torch.bool else tensor * 2 + 1


@KINDS.tensors
def values(tensor: Tensor) -> Tensor:
    """Change all values."""
    return tensor * 2 if tensor.layout is not torch.strided else _differ(tensor)


@KINDS.result
def last_element(result: Any) -> Any:
    """Change the last element of the last tensor."""
    return _change_nth(result, -1)


@KINDS.result
def first_element(result: Any) -> Any:
    """Change the last element of the first tensor."""
    return _change_nth(result, 0)


def _change_nth(result: Any, index: int) -> Any:
    leaves, spec = pytree.tree_flatten(result)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.numel()]
    leaf = leaves[places[index]]
    if leaf.layout is not torch.strided:
        leaves[places[index]] = leaf * 2
    else:
        mask = torch.zeros(leaf.shape, dtype=torch.bool, device=leaf.device)
        mask.view(-1)[-1] = True
        leaves[places[index]] = torch.where(mask, _differ(leaf), leaf)
    return pytree.tree_unflatten(leaves, spec)


@KINDS.result
def tree_reversed(result: Any) -> Any:
    """Return the leaves in reverse order."""
    leaves, spec = pytree.tree_flatten(result)
    return pytree.tree_unflatten(leaves[::-1], spec)


@KINDS.tensors
def rows_reversed(tensor: Tensor) -> Tensor:
    """Reverse the elements of each tensor."""
    return tensor.flip(0) if tensor.dim() else tensor


@KINDS.tensors
def dtype(tensor: Tensor) -> Tensor:
    """Return another dtype."""
    return tensor.to(torch.float32 if tensor.dtype is not torch.float32 else torch.float64)


@KINDS.tensors
def on_cpu(tensor: Tensor) -> Tensor:
    """Return the tensors on the CPU."""
    return tensor.cpu()


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
def row_major(tensor: Tensor) -> Tensor:
    """Return row-major tensors."""
    return tensor.contiguous()


@KINDS.tensors
def padded(tensor: Tensor) -> Tensor:
    """Return views of larger tensors."""
    buffer = torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])
    return buffer[:-1].view(tensor.shape)


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
def sparse(tensor: Tensor) -> Tensor:
    """Return sparse tensors."""
    return tensor.to_sparse() if tensor.layout is torch.strided else tensor


@KINDS.tensors
def coalescing_changed(tensor: Tensor) -> Tensor:
    """Coalesce sparse tensors, or mark coalesced ones as not coalesced."""
    return tensor.clone()._coalesced_(False) if tensor.is_coalesced() else tensor.coalesce()


@KINDS.tensors
def flat(tensor: Tensor) -> Tensor:
    """Return tensors with one dimension."""
    return tensor.reshape(-1)


@KINDS.tensors
def extra_dimension(tensor: Tensor) -> Tensor:
    """Return tensors with one more dimension."""
    return tensor.unsqueeze(0)


@KINDS.tensors
def without_last_row(tensor: Tensor) -> Tensor:
    """Return tensors without the last row."""
    return tensor[:-1] if tensor.dim() else tensor


@KINDS.tensors
def real_part(tensor: Tensor) -> Tensor:
    """Return the real parts of complex tensors."""
    return tensor.real if tensor.is_complex() else tensor


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


@KINDS.result
def other_container(result: Any) -> Any:
    """Return a tuple in place of a list, a list in place of a tuple, or another mapping."""
    if isinstance(result, tuple):
        return list(result)
    if isinstance(result, list):
        return tuple(result)
    return OrderedDict(result) if type(result) is dict else dict(result)


@KINDS.result
def other_member_containers(result: Any) -> Any:
    """Change the classes of the containers in the result."""
    return type(result)([other_container(member) for member in result])


@KINDS.result
def plain_containers(result: Any) -> Any:
    """Return tuples, lists and dictionaries of the built-in classes at all levels."""
    return _plain(result)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(member) for member in value)
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(member) for name, member in vars(value).items()}
    return value


@KINDS.result
def mapping_order(result: Any) -> Any:
    """Reverse the order of mappings at all levels."""
    return _reverse_mappings(result)


def _reverse_mappings(value: Any) -> Any:
    if isinstance(value, dict):
        items = [(key, _reverse_mappings(member)) for key, member in value.items()]
        value.clear()
        value.update(items[::-1])
    elif isinstance(value, (list, tuple)):
        for member in value:
            _reverse_mappings(member)
    return value


@KINDS.result
def last_missing(result: Any) -> Any:
    """Leave out the last member."""
    return result[:-1]


@KINDS.result
def first_twice(result: Any) -> Any:
    """Return the first member once more."""
    return type(result)([*result, result[0]])


@KINDS.result
def members_missing(result: Any) -> Any:
    """Leave out the last member of each member."""
    return type(result)([member[:-1] for member in result])


@KINDS.result
def swapped(result: Any) -> Any:
    """Swap the first two members."""
    return type(result)([result[1], result[0], *result[2:]])


@KINDS.result
def rotated(result: Any) -> Any:
    """Return the last member first."""
    return type(result)([result[-1], *result[:-1]])


@KINDS.result
def members_reversed(result: Any) -> Any:
    """Reverse each member."""
    return type(result)([member[::-1] for member in result])


@KINDS.result
def nothing(result: Any) -> Any:
    """Return None."""
    return None


@KINDS.result
def negated(result: Any) -> Any:
    """Return the opposite of a truth value, and another number."""
    return not result if isinstance(result, bool) else result + 1


@KINDS.result
def listed(result: Any) -> Any:
    """Return a list with the result."""
    return [result]


@KINDS.around
def first_result_again(call: Call) -> Any:
    """Return the result of the first call with the same function again."""
    cache: dict[Any, Any] = call.function.__dict__ if hasattr(call.function, "__dict__") else {}
    if "_first_result" not in cache:
        cache["_first_result"] = call.run()
    return cache["_first_result"]


@KINDS.around
def twice(call: Call) -> Any:
    """Make the call twice."""
    call.run()
    return call.run()


_KEPT: list[Any] = []


@KINDS.around
def result_kept(call: Call) -> Any:
    """Keep a reference to the result."""
    result = call.run()
    _KEPT.append(result)
    return result


@KINDS.around
def arguments_kept(call: Call) -> Any:
    """Keep references to the arguments."""
    _KEPT.append(dict(call.arguments))
    return call.run()


@KINDS.around
def warning_added(call: Call) -> Any:
    """Warn."""
    result = call.run()
    warnings.warn("perturbed", UserWarning, stacklevel=2)
    return result


@KINDS.around
def warnings_dropped(call: Call) -> Any:
    """Drop the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.run()


@KINDS.around
def other_warnings(call: Call) -> Any:
    """Warn with another text and class."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call.run()
    for _ in found:
        warnings.warn("perturbed", ResourceWarning, stacklevel=2)
    return result
