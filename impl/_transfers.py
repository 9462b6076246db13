"""Copies from device to device: of one tensor, and of a bucket of tensors at once.

The small dense members of a bucket are packed into one flat buffer for the journey. A large one
travels alone, which spares the packing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._buckets import pack, size_in_bytes, unpack

__all__ = ["copy_bucket", "row_major_copy", "send", "small_and_large"]

#: Bytes from which packing a tensor costs more than a transfer of its own.
_LARGE = 1024 * 1024


def send(tensor: Tensor, device: torch.device, *, copy: bool = False) -> Tensor:
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
    return tensor.to(device, non_blocking=device.type != "cpu", copy=copy)


def copy_bucket(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Copy one bucket to each of ``devices``.

    Args:
        bucket: Tensors of one device, dtype and layout.
        devices: Targets; a device that appears twice gets two copies.

    Returns:
        For each device a list of plain tensors without history, in the bucket's order:
        row-major, with version counters of their own, sharing no memory with the bucket nor
        with another device's list. Members of one list may share one storage.
    """
    small, large = small_and_large(bucket)
    with torch.no_grad():
        rows = [
            {place: row_major_copy(bucket[place], device) for place in large} for device in devices
        ]
        if small:
            small.sort(key=lambda place: bucket[place].shape)  # Like shapes are unpacked at once.
            members = [bucket[place] for place in small]
            flat = pack(members)
            for slot, (row, device) in enumerate(zip(rows, devices, strict=True)):
                # The flat buffer is new: the first slot on its device may keep it.
                arrived = send(flat, device, copy=device in devices[:slot])
                pieces = unpack(arrived, members)
                # A piece without dimensions is a view of one with one; `.data` is none.
                plain = (piece if piece.dim() else piece.data for piece in pieces)
                row.update(zip(small, plain, strict=True))
    return [[row[place] for place in range(len(bucket))] for row in rows]


def row_major_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy one tensor, dense or sparse COO, to ``device``; dense copies are row-major."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device)
    return copy.copy_(tensor, non_blocking=device.type != "cpu")


def small_and_large(bucket: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Part a bucket's places into those worth packing and those that travel alone.

    A single small tensor, which packing would not copy, travels alone, and so does a sparse one.
    """
    places = range(len(bucket))
    small = [place for place in places if size_in_bytes(bucket[place]) < _LARGE]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(places)
    if len(small) == len(bucket):
        return small, []
    return small, [place for place in places if size_in_bytes(bucket[place]) >= _LARGE]
