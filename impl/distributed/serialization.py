"""Serialization of nested values: a pickled structure, and the bytes of the tensors.

The pickled structure has an index in place of each tensor, at any depth and in any object that can
be pickled. :class:`TensorMeta` has the metadata to rebuild a tensor from its bytes.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._devices import alignment_on, is_on_cpu


class TensorMeta(NamedTuple):
    """The metadata of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    on_cpu: bool

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> "TensorMeta":
        """Return the metadata of ``tensor``. Raise TypeError if its layout is not strided."""
        if tensor.layout is not torch.strided:
            raise TypeError(f"a tensor of layout {tensor.layout} cannot be sent to other ranks")
        return cls(tuple(tensor.shape), tensor.dtype, tensor.requires_grad, is_on_cpu(tensor))

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all elements."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def padded_bytes(self, device: torch.device) -> int:
        """Return the bytes on ``device``, including the gap up to the next aligned address."""
        alignment = alignment_on(device)
        return -(-self.num_bytes // alignment) * alignment


def describe(tensor: Tensor) -> str:
    """Return the shape and the dtype of ``tensor``, for error messages."""
    return f"{tuple(tensor.shape)} of {tensor.dtype}"


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


class Packed(NamedTuple):
    """A nested value without the elements of its tensors."""

    structure: bytes
    metas: list[TensorMeta]


def pack(value: Any) -> tuple[Packed, list[Tensor]]:
    """Return ``value`` without its tensors, and its tensors.

    Raise TypeError for a tensor that is not strided, and pickle's error for other values that
    cannot be pickled.
    """
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    metas = [TensorMeta.from_tensor(tensor) for tensor in packer.tensors]
    return Packed(file.getvalue(), metas), packer.tensors


def unpack(packed: Packed, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a packed value with ``tensors``."""
    return _Unpacker(io.BytesIO(packed.structure), tensors).load()


def count_bytes(metas: Sequence[TensorMeta], device: torch.device) -> int:
    """Return the bytes that all tensors need on ``device``, padding included."""
    return sum(meta.padded_bytes(device) for meta in metas)


def copy_to_bytes(tensors: Sequence[Tensor], size: int, device: torch.device) -> Tensor:
    """Copy ``tensors`` one after the other into a new tensor of ``size`` bytes on ``device``.

    Each copy is aligned like a new tensor on ``device``.
    """
    # Padding is zero, so that equal tensors have equal bytes.
    data = torch.zeros(size, dtype=torch.uint8, device=device)
    metas = [TensorMeta.from_tensor(tensor) for tensor in tensors]
    for view, tensor in zip(view_tensors(data, metas), tensors, strict=True):
        view.copy_(tensor.detach())
    return data


def view_tensors(data: Tensor, metas: Sequence[TensorMeta]) -> list[Tensor]:
    """Return views of ``data`` as tensors, one for each of ``metas``."""
    views, start = [], 0
    for meta in metas:
        views.append(data[start : start + meta.num_bytes].view(meta.dtype).view(meta.shape))
        start += meta.padded_bytes(data.device)
    return views


def read_tensors(data: Tensor, metas: Sequence[TensorMeta], device: torch.device) -> list[Tensor]:
    """Return the tensors in ``data``.

    Tensors that were sent from the CPU are returned on the CPU, all others on ``device``.
    """
    return [
        view.to("cpu" if meta.on_cpu else device)
        for view, meta in zip(view_tensors(data, metas), metas, strict=True)
    ]
