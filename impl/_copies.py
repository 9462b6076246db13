"""Copies of tensors between devices, with their class and attributes, and gradients of copies."""

from collections.abc import Iterable, Iterator
from copy import copy as copy_object
from typing import Any

import torch
from torch import Tensor, nn

from ._devices import is_cpu
from ._inputs import SPARSE_LAYOUTS
from ._torch_private import PARAMETER_MARK, use_plain_operators


def has_own_operators(tensor_class: type[Tensor]) -> bool:
    """Return whether ``tensor_class`` defines its own ``__torch_dispatch__``."""
    return tensor_class.__torch_dispatch__ is not Tensor.__torch_dispatch__


# Copies of tensors whose class or whose attributes are not those of a new tensor.
#
# A class with its own ``__torch_dispatch__`` copies its tensors itself, with their attributes.
# All other tensors are copied as plain tensors, and the copies get class and attributes
# afterwards.


#: The classes of tensors that support all operators; a subclass may not.
PLAIN_CLASSES = frozenset((Tensor, nn.Parameter))


def with_class_and_attributes(copy: Tensor, source: Tensor) -> Tensor:
    """Return ``copy`` with the class and the attributes of ``source``.

    The attributes are the same objects as those of ``source``, except those that
    :func:`_copied_state` copies. The copy of a Parameter is a plain tensor, because it is not a
    leaf of the autograd graph.
    """
    if copy is source or has_own_operators(type(source)):
        return copy
    kind = type(source)
    if not issubclass(kind, nn.Parameter) and type(copy) is not kind:
        copy = copy.as_subclass(kind)
    copy_attributes(source, copy)
    attributes: dict[str, Any] = copy.__dict__
    for name, value in attributes.items():
        attributes[name] = _copied_state(value, source.device, copy.device)
    return copy


def _copied_state(
    value: Any, source: torch.device, device: torch.device, *, is_inner: bool = False
) -> Any:
    """Return ``value``; if it is state of a tensor on ``source``, a copy of it on ``device``.

    State is an object that has a method ``to`` and tensors on ``source`` in its attributes, or in
    those of such an object in them. ``quant_state`` of bitsandbytes is an example. Its method
    ``to`` changes the object, so it is not called. On the same device the copy shares the tensors:
    a kernel that packs the weight of a replica notes that in the state of this replica alone.
    """
    if not _may_be_state(value):
        return value
    members = {
        name: to_device(each, device)
        for name, each in vars(value).items()
        if isinstance(each, Tensor) and each.device == source
    }
    if not is_inner:
        for name, each in vars(value).items():
            inner = _copied_state(each, source, device, is_inner=True)
            if inner is not each:
                members[name] = inner
    if not members:
        return value
    copied = copy_object(value)
    vars(copied).update(members)
    return copied


def find_states(tensor: Tensor) -> Iterator[Any]:
    """Yield the objects in attributes of ``tensor`` that copies of it may not share."""
    for value in filter(_may_be_state, vars(tensor).values()):
        yield value
        yield from filter(_may_be_state, vars(value).values())


def _may_be_state(value: Any) -> bool:
    is_object = hasattr(type(value), "to") and hasattr(value, "__dict__")
    return is_object and not isinstance(value, (Tensor, nn.Module))


def detached(tensor: Tensor, source: Tensor) -> Tensor:
    """Return a new tensor with the memory of ``tensor``, and the class of a copy of ``source``."""
    if type(tensor) in PLAIN_CLASSES and not source.__dict__:
        return tensor.detach()
    with use_plain_operators():
        detached = tensor.detach()
    return with_class_and_attributes(detached, source)


def copy_attributes(source: Tensor, copy: Tensor) -> None:
    """Copy the attributes of ``source`` to ``copy``, also those that its class has set anew."""
    attributes: dict[str, Any] = copy.__dict__
    for name, value in source.__dict__.items():
        if name != PARAMETER_MARK:
            attributes[name] = value


# Copies of tensors between devices.


def to_device(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Return ``tensor`` on ``device``, with the same dense strides. Gradients flow back to it.

    The host waits only for copies to the CPU, because no stream orders later reads on the CPU.
    """
    return tensor.to(device, non_blocking=not is_cpu(device), copy=copy)


def move_by_own_operators(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Return ``tensor``, of a class with its own operators, on ``device``. Gradients flow back."""
    if tensor.layout is not torch.jagged or not tensor.requires_grad or tensor.device == device:
        # The method `to` of torchao's tensors refuses the argument `copy`.
        moved = tensor.to(device, non_blocking=not is_cpu(device))
        return moved.clone() if copy and tensor.device == device else moved
    # Autograd cannot pass the gradient of a nested tensor to another device, but it can pass the
    # dense gradient of the nested tensor's values.
    nested: Any = tensor
    lengths = nested.lengths()  # None if there are no gaps between the rows.
    return torch.nested.nested_tensor_from_jagged(
        to_device(nested.values(), device),
        to_device(nested.offsets(), device),
        None if lengths is None else to_device(lengths, device),
        jagged_dim=next(dim for dim, size in enumerate(nested.shape) if type(size) is not int),
    )


def tensor_dict_to_device(value: Any, device: torch.device) -> Any:
    """Return a TensorDict with all tensors on ``device``. Gradients flow back."""
    if all(tensor.device == device for tensor in value.values(True, True)):
        return value
    moved = value.to(device)
    # A TensorDict may have no device of its own, so that its tensors may be on several devices.
    return moved if value.device is not None else moved.clear_device_()


def without_repeats(tensor: Tensor) -> Tensor:
    """Return a strided ``tensor``; if it is expanded, a view that has each element once.

    PyTorch refuses to write to an expanded tensor.
    """
    if 0 in tensor.stride():
        for dim in range(tensor.dim()):
            if tensor.stride(dim) == 0 and tensor.size(dim) > 1:
                tensor = tensor.narrow(dim, 0, 1)
    return tensor


def row_major_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy one tensor, dense or sparse, to ``device``; dense copies are row-major."""
    if tensor.layout not in (torch.strided, torch.sparse_coo) or tensor.is_nested:
        # `copy_` needs as many elements in the copy, and `empty` does not know block layouts, nor
        # the sizes of nested tensors.
        return to_device(tensor, device, copy=True)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device)
    return copy.copy_(tensor, non_blocking=not is_cpu(device))


# Gradients of copies.


def needs_grad(tensors: Iterable[Tensor]) -> bool:
    """Return whether grad mode is on and one of ``tensors`` requires grad."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def check_gradient_layout(tensor: Tensor, name: str) -> None:
    """Raise NotImplementedError if no gradients can flow back from copies of ``tensor``."""
    layout = tensor.layout
    if layout in SPARSE_LAYOUTS and tensor.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"{name} requires grad and has the layout {layout}, for which PyTorch passes no "
            "gradients between devices: detach it, or make it dense"
        )
