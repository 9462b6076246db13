"""Nested values on their way to other processes: a skeleton in pickle's form, and bytes.

The tensors are pulled out of a value before it is pickled, at any depth and out of any object
that can be pickled; a *label* says how each is built again from its bytes.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._devices import alignment_on, is_on_cpu

__all__ = ["Label", "as_bytes", "from_bytes", "label", "pack", "size_in_bytes", "unpack"]


class Label(NamedTuple):
    """What a tensor is, but for its elements.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        order: Its dimensions in the order of memory, that of the longest steps first.
        requires_grad: Whether gradients are to flow to it.
        on_cpu: Whether it is on the CPU.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...]
    requires_grad: bool
    on_cpu: bool


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: int) -> Tensor:
        return self._tensors[pid]


def pack(value: Any) -> tuple[bytes, list[Tensor]]:
    """Take ``value`` apart into its skeleton and its tensors, in the order of the skeleton.

    Raises:
        Exception: Something in ``value`` cannot be pickled; pickle's own.
    """
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    return file.getvalue(), packer.tensors


def unpack(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    """Build a value from its skeleton, with ``tensors`` in the places of its own."""
    return _Unpacker(io.BytesIO(skeleton), tensors).load()


def label(tensor: Tensor) -> Label:
    """Describe ``tensor``.

    Raises:
        TypeError: It is sparse, or has another layout than rows of bytes.
    """
    if tensor.layout is not torch.strided:
        raise TypeError(f"a tensor of layout {tensor.layout} cannot be sent to other ranks")
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return Label(
        tuple(tensor.shape), tensor.dtype, tuple(order), tensor.requires_grad, is_on_cpu(tensor)
    )


def size_in_bytes(labels: Sequence[Label], device: torch.device) -> int:
    """Count the bytes that tensors take together on ``device``, gaps included."""
    return sum(_length(each, device) for each in labels)


def as_bytes(tensors: Sequence[Tensor], size: int, device: torch.device) -> Tensor:
    """Copy ``tensors`` one behind the other into ``size`` bytes on ``device``.

    Each begins at a multiple of the bytes to which new tensors are aligned there.
    """
    out = torch.empty(size, dtype=torch.uint8, device=device)
    labels = [label(tensor) for tensor in tensors]
    for part, tensor in zip(_cut_out(out, labels), tensors, strict=True):
        part.copy_(tensor.detach())
    return out


def from_bytes(data: Tensor, labels: Sequence[Label]) -> list[Tensor]:
    """Find tensors in ``data``, whose memory they share."""
    return _cut_out(data, labels)


def _cut_out(data: Tensor, labels: Sequence[Label]) -> list[Tensor]:
    parts, start = [], 0
    for each in labels:
        parts.append(_cut_one(data[start:], each))
        start += _length(each, data.device)
    return parts


def _cut_one(data: Tensor, its: Label) -> Tensor:
    size = torch.Size(its.shape).numel() * its.dtype.itemsize
    in_memory = data[:size].view(its.dtype).view([its.shape[dim] for dim in its.order])
    back = sorted(range(len(its.order)), key=its.order.__getitem__)
    return in_memory.permute(back)


def _length(its: Label, device: torch.device) -> int:
    size = torch.Size(its.shape).numel() * its.dtype.itemsize
    alignment = alignment_on(device)
    return -(-size // alignment) * alignment
