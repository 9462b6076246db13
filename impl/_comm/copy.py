"""Copies from device to device: of one tensor, and of a bucket of tensors at once.

The small dense members of a bucket are packed into one flat buffer for the journey. A large one
travels alone, which spares the packing.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._device import is_cpu
from .buckets import pack, sizes_in_bytes, sorted_by_index, spacing_on, unpack

__all__ = ["copy_bucket", "partition_by_size", "row_major_copy", "to_device", "wrapper_to_device"]

#: Bytes from which packing a tensor costs more than a transfer of its own.
_LARGE_BYTES = 1024 * 1024


def to_device(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
    """Move ``tensor`` to ``device``, differentiably.

    Args:
        tensor: Any dtype, layout and device.
        device: The target.
        copy: Whether to copy a tensor that is there already.

    Returns:
        The same values on ``device``, dense strides kept; ``tensor`` itself if it is there and
        ``copy`` is False. The host waits only for a copy to the CPU, where nothing else would
        keep a reader from memory that is still being written.
    """
    return tensor.to(device, non_blocking=not is_cpu(device), copy=copy)


def wrapper_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move ``tensor``, whose class implements the operations itself, differentiably."""
    is_jagged = tensor.layout is torch.jagged
    if not is_jagged or not tensor.requires_grad or tensor.device == device:
        return to_device(tensor, device)
    # Autograd hands no nested gradient to another device. That of the values is dense.
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
        For each device a list of plain tensors without history, in the bucket's order:
        row-major, aligned as new tensors are, with version counters of their own, sharing no
        memory with the bucket nor with another device's list. Members of one list may share one
        storage.
    """
    if not devices:
        return []
    small, large = partition_by_size(bucket)
    with torch.no_grad():
        rows = [[row_major_copy(bucket[index], device) for index in large] for device in devices]
        if small:
            # Like shapes are unpacked at once.
            small.sort(key=[tensor.shape for tensor in bucket].__getitem__)
            packed = _packed_copies([bucket[index] for index in small], devices)
            rows = [pieces + row for pieces, row in zip(packed, rows, strict=True)]
    return sorted_by_index(rows, small + large)


def _packed_copies(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> Iterator[list[Tensor]]:
    """Copy the small dense members of a bucket as one."""
    spacing = spacing_on(devices, bucket[0].dtype)
    flat = pack(bucket, spacing)
    shapes = [tensor.shape for tensor in bucket]
    for index, device in enumerate(devices):
        # The flat buffer is new: the first copy on its device may keep it.
        yield unpack(to_device(flat, device, copy=device in devices[:index]), shapes, spacing)


def row_major_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy one tensor, dense or sparse COO, to ``device``; dense copies are row-major."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device)
    return copy.copy_(tensor, non_blocking=not is_cpu(device))


def partition_by_size(bucket: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Part a bucket's indices into those worth packing and those that travel alone.

    A single small tensor, which packing would not copy, travels alone, and so does a sparse one.
    """
    sizes = sizes_in_bytes(bucket)
    small = [index for index, size in enumerate(sizes) if size < _LARGE_BYTES]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(range(len(bucket)))
    return small, [index for index, size in enumerate(sizes) if size >= _LARGE_BYTES]
