"""Facts about tensors that a primitive of ``torch._C`` and its stand-in have in common."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

#: Keys of `facts` whose values may differ if NCCL copies between CUDA devices.
NCCL_FACTS = ("version", "graph", "requires_grad")


def facts(nested: object) -> list[dict[str, Any]]:
    """Return the facts about each tensor in ``nested``."""
    tensors = list(flatten(nested))
    memory = [storage_of(tensor) for tensor in tensors]
    return [
        {
            "is_same": [tensor is other for other in tensors],
            "shares_memory": [storage_of(tensor) == other for other in memory],
            "class": type(tensor).__name__,
            "dtype": tensor.dtype,
            "device": tensor.device,
            "layout": layout_of(tensor),
            "coalesced": tensor.is_sparse and tensor.is_coalesced(),
            "view": tensor._is_view(),
            "requires_grad": tensor.requires_grad,
            "graph": type(tensor.grad_fn).__name__,
            "version": None if tensor.is_inference() else tensor._version,
        }
        for tensor in tensors
    ]


def layout_of(tensor: Tensor) -> tuple[object, ...]:
    """Return layout, shape, strides and offset of a dense tensor; layout and shape of another."""
    if tensor.is_nested:
        return (tensor.layout, "nested")
    if tensor.layout is not torch.strided:
        return (tensor.layout, tensor.shape)
    return (tensor.layout, tensor.shape, tensor.stride(), tensor.storage_offset())


def flatten(nested: object) -> Iterator[Tensor]:
    """Yield the tensors in nested lists and tuples."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for member in nested:
            yield from flatten(member)


def storage_of(tensor: Tensor) -> object:
    """Return the address of the memory; for a tensor without elements a new object."""
    dense = tensor._values() if tensor.is_sparse else tensor
    if dense.is_nested or not dense.numel() or dense.is_meta:
        return object()
    return dense.untyped_storage().data_ptr()


def drop_facts(outcome: list[Any], dropped: tuple[str, ...]) -> list[Any]:
    """Return ``outcome`` without the facts ``dropped``."""
    return [
        {key: value for key, value in each.items() if key not in dropped}
        if isinstance(each, dict)
        else each
        for each in outcome
    ]
