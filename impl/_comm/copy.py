"""Copies of tensors, and of buckets of tensors, between devices.

Small dense tensors of a bucket are packed into one flat tensor for the transfer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._device import is_cpu
from .buckets import pack, packed_alignment, sizes_in_bytes, sorted_by_index, unpack
from .grad_mode import without_grad

#: Tensors of at least this many bytes are copied separately, because packing takes longer.
_LARGE_BYTES = 1024 * 1024


def to_device(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Return ``tensor`` on ``device``, with the same dense strides. Gradients flow back to it.

    A tensor that is already on ``device`` is copied only if ``copy`` is True. The host waits only
    for copies to the CPU, because no stream orders later reads on the CPU.
    """
    return tensor.to(device, non_blocking=not is_cpu(device), copy=copy)


def wrapper_to_device(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Return ``tensor``, of a class with its own operators, on ``device``. Gradients flow back.

    If ``tensor`` is already on ``device``, it is copied only if ``copy`` is True.
    """
    if tensor.layout is not torch.jagged or not tensor.requires_grad or tensor.device == device:
        return to_device(tensor, device, copy=copy)
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


@without_grad
def copy_bucket(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Copy a bucket to each of ``devices``.

    The tensors of a bucket have the same device, dtype and layout. Return for each device a list
    of plain tensors without history, in the order of the bucket. Each tensor is row-major, is
    aligned like a new tensor, and has its own version counter. The tensors of one list may share
    one storage. Different lists share no storage with each other or with the bucket.
    """
    if not devices:
        return []
    small, large = partition_by_size(bucket)
    rows = [[row_major_copy(bucket[index], device) for index in large] for device in devices]
    if small:
        packed = _packed_copies([bucket[index] for index in small], devices)
        rows = [pieces + row for pieces, row in zip(packed, rows, strict=True)]
    return sorted_by_index(rows, small + large)


def _packed_copies(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> Iterator[list[Tensor]]:
    """Yield the copies of small dense tensors on each device."""
    spacing = packed_alignment(devices, bucket[0].dtype)
    flat = pack(bucket, spacing)
    shapes = [tensor.shape for tensor in bucket]
    for index, device in enumerate(devices):
        # `flat` is a new tensor, so the first entry of `devices` that is the device of `flat` gets
        # views of it. Later equal entries get views of copies.
        yield unpack(to_device(flat, device, copy=device in devices[:index]), shapes, spacing)


def row_major_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy one tensor, dense or sparse, to ``device``; dense copies are row-major."""
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        # `copy_` needs as many elements in the copy, and `empty` does not know block layouts.
        return to_device(tensor, device, copy=True)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device)
    return copy.copy_(tensor, non_blocking=not is_cpu(device))


def partition_by_size(bucket: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Return the indices of the tensors to pack, and the indices of those to copy separately.

    Sparse tensors are not packed, nor is a single small tensor. The tensors to pack are sorted by
    shape: consecutive tensors with the same shape are unpacked in one operation.
    """
    sizes = sizes_in_bytes(bucket)
    small = [index for index, size in enumerate(sizes) if size < _LARGE_BYTES]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(range(len(bucket)))
    small.sort(key=[tensor.shape for tensor in bucket].__getitem__)
    return small, [index for index, size in enumerate(sizes) if size >= _LARGE_BYTES]
