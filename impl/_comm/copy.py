"""Copies of tensors, and of buckets of tensors, between devices.

Small dense tensors of a bucket are packed into one flat tensor for the transfer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._device import is_cpu
from .buckets import pack, sizes_in_bytes, sorted_by_index, spacing_on, unpack

#: Bytes from which packing a tensor takes longer than a separate transfer.
_LARGE_BYTES = 1024 * 1024


def to_device(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Copy ``tensor`` to ``device``, differentiably.

    Args:
        tensor: Any dtype, layout and device.
        device: The target.
        copy: Whether to copy a tensor that is already on ``device``.

    Returns:
        The same values on ``device``, with the same dense strides; ``tensor`` itself if it is
        already there and ``copy`` is False. The host waits only for copies to the CPU, which has
        no stream that could order later reads.
    """
    return tensor.to(device, non_blocking=not is_cpu(device), copy=copy)


def wrapper_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor whose class implements its own operators, differentiably."""
    is_jagged = tensor.layout is torch.jagged
    if not is_jagged or not tensor.requires_grad or tensor.device == device:
        return to_device(tensor, device)
    # Autograd cannot pass a nested gradient to another device. That of the values is dense.
    nested: Any = tensor
    return torch.nested.nested_tensor_from_jagged(
        to_device(nested.values(), device), to_device(nested.offsets(), device)
    )


def copy_bucket(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Copy one bucket to each of ``devices``.

    Args:
        bucket: Tensors of one device, dtype and layout.
        devices: Targets; a device that appears twice gets two copies.

    Returns:
        For each device a list of plain tensors without history, in the order of the bucket.
        They are row-major, aligned as new tensors, and have their own version counters. They
        share no memory with the bucket or with other lists; tensors of one list may share one
        storage.
    """
    if not devices:
        return []
    small, large = partition_by_size(bucket)
    with torch.no_grad():
        rows = [[row_major_copy(bucket[index], device) for index in large] for device in devices]
        if small:
            # Tensors of one shape are unpacked in one operation.
            small.sort(key=[tensor.shape for tensor in bucket].__getitem__)
            packed = _packed_copies([bucket[index] for index in small], devices)
            rows = [pieces + row for pieces, row in zip(packed, rows, strict=True)]
    return sorted_by_index(rows, small + large)


def _packed_copies(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> Iterator[list[Tensor]]:
    """Yield the copies of small dense tensors on each device."""
    spacing = spacing_on(devices, bucket[0].dtype)
    flat = pack(bucket, spacing)
    shapes = [tensor.shape for tensor in bucket]
    for index, device in enumerate(devices):
        # The flat tensor is new, so the first copy on its device may use its memory.
        yield unpack(to_device(flat, device, copy=device in devices[:index]), shapes, spacing)


def row_major_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy one tensor, dense or sparse COO, to ``device``; dense copies are row-major."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device)
    return copy.copy_(tensor, non_blocking=not is_cpu(device))


def partition_by_size(bucket: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Return the indices of the tensors to pack, and of those to copy separately.

    Sparse tensors, and a single small tensor, are not packed.
    """
    sizes = sizes_in_bytes(bucket)
    small = [index for index, size in enumerate(sizes) if size < _LARGE_BYTES]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(range(len(bucket)))
    return small, [index for index, size in enumerate(sizes) if size >= _LARGE_BYTES]
