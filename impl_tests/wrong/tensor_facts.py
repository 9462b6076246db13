"""The facts of the tensors in an argument."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

__all__ = ["NAMES", "facts_of_tensors", "shape"]

_HALF = (torch.float16, torch.bfloat16)
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr)
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

#: The facts of one tensor.
_TENSOR: dict[str, Callable[[Tensor], bool]] = {
    "cpu": lambda tensor: tensor.device.type == "cpu",
    "meta": lambda tensor: tensor.device.type == "meta",
    "sparse": lambda tensor: tensor.layout is torch.sparse_coo,
    "compressed": lambda tensor: tensor.layout in _COMPRESSED,
    "nested": lambda tensor: tensor.is_nested,
    "complex": lambda tensor: tensor.is_complex(),
    "integer": lambda tensor: not tensor.is_floating_point() and not tensor.is_complex(),
    "bool": lambda tensor: tensor.dtype is torch.bool,
    "half": lambda tensor: tensor.dtype in _HALF,
    "double": lambda tensor: tensor.dtype is torch.float64,
    "scalar": lambda tensor: tensor.dim() == 0,
    "empty-tensor": lambda tensor: _is_strided(tensor) and tensor.numel() == 0,
    "strided": lambda tensor: _is_strided(tensor) and not tensor.is_contiguous(),
    "expanded": lambda tensor: _is_strided(tensor) and 0 in tensor.stride(),
    "channels-last": lambda tensor: _is_channels_last(tensor),
    "grad": lambda tensor: tensor.requires_grad,
    "leaf": lambda tensor: tensor.requires_grad and tensor.is_leaf,
    "non-leaf": lambda tensor: tensor.requires_grad and not tensor.is_leaf,
    "view": lambda tensor: _is_strided(tensor) and tensor._is_view(),
    "parameter": lambda tensor: isinstance(tensor, nn.Parameter),
    "subclass": lambda tensor: type(tensor) not in (Tensor, nn.Parameter),
    "other-device": lambda tensor: tensor.device.type == "sim" and tensor.device.index != 0,
    "inference-tensor": lambda tensor: tensor.is_inference(),
}
#: The facts of several tensors.
_TENSORS: dict[str, Callable[[Sequence[Tensor]], bool]] = {
    "mixed-dtypes": lambda tensors: len({tensor.dtype for tensor in tensors}) > 1,
    "mixed-devices": lambda tensors: len({tensor.device for tensor in tensors}) > 1,
    "mixed-layouts": lambda tensors: len({tensor.layout for tensor in tensors}) > 1,
    "mixed-ranks": lambda tensors: len({tensor.dim() for tensor in tensors}) > 1,
    "mixed-shapes": lambda tensors: (
        len({tensor.dim() for tensor in tensors}) == 1
        and len({shape(tensor) for tensor in tensors}) > 1
    ),
    "same-tensor": lambda tensors: len({id(tensor) for tensor in tensors}) < len(tensors),
    "one-device": lambda tensors: (
        len(tensors) > 1 and len({tensor.device for tensor in tensors}) == 1
    ),
}
#: The names of all facts.
NAMES = frozenset({*_TENSOR, *_TENSORS, "no-tensors", "uninitialized"})


def facts_of_tensors(tensors: Sequence[Tensor]) -> Iterator[str]:
    """Yield the facts of the tensors in an argument."""
    if not tensors:
        yield "no-tensors"
    elif any(is_lazy(tensor) for tensor in tensors):
        yield "uninitialized"
    else:
        yield from (
            fact for fact, holds in _TENSOR.items() if any(holds(tensor) for tensor in tensors)
        )
        yield from (fact for fact, holds in _TENSORS.items() if holds(tensors))


def shape(tensor: Tensor) -> tuple[Any, ...]:
    """Return the shape, which is empty for nested tensors."""
    return () if tensor.is_nested else tuple(tensor.shape)


def _is_strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _is_channels_last(tensor: Tensor) -> bool:
    memory_format = _CHANNELS_LAST.get(tensor.dim())
    return (
        memory_format is not None
        and _is_strided(tensor)
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=memory_format)
    )
