"""The split of several tensors into chunks, and the copies of chunks on their devices."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._compat import use_plain_operators
from .._device import call_on_streams, is_on_cpu, side_stream
from .copy import to_device
from .grad_mode import without_grad
from .split_cat import split_into_views
from .subclasses import PLAIN_CLASSES

_NO_GUARD = nullcontext()
#: For each device that has streams: its current stream.
StreamByDevice = Mapping[torch.device, torch.Stream]


@dataclass(slots=True)
class SplitTensor:
    """A tensor to split along ``dim``, and its chunks after :func:`split_and_move`."""

    tensor: Tensor
    sizes: Sequence[int] | None  # None for the sizes of ``Tensor.chunk``.
    dim: int
    path: Any  # The caller's name of the tensor, for errors.
    chunks: Sequence[Tensor] = ()


#: Iterates over tensors, and remembers the tensor that is being handled, for errors.
_Visit = Callable[[Iterable[SplitTensor]], Iterator[SplitTensor]]


@without_grad
def split_and_move(
    splits: Iterable[SplitTensor],
    devices: Sequence[torch.device],
    streams: StreamByDevice,
    visit: _Visit,
) -> None:
    """Split each tensor into one chunk for each of ``devices``, and move the chunks there.

    A chunk on the device of its tensor is a view. No chunk is attached to the graph of its tensor.
    ``streams`` has the current stream of each device that has streams.
    """
    # Split all tensors first: a tensor that cannot be split raises before any device has work.
    on_cpu: list[SplitTensor] = []
    elsewhere: list[SplitTensor] = []
    for split in visit(splits):
        split.chunks = split_into_views(split.tensor, len(devices), split.sizes, split.dim)
        (on_cpu if is_on_cpu(split.tensor) else elsewhere).append(split)
    for split in visit(elsewhere):
        source = split.tensor.device
        split.chunks = [
            chunk if device == source else to_device(chunk, device)
            for chunk, device in zip(split.chunks, devices, strict=False)
        ]
    if on_cpu:
        chunk_lists = (split.chunks for split in visit(on_cpu))
        copies = chunks_from_cpu(chunk_lists, devices, streams)
        for split, chunks in zip(on_cpu, copies, strict=True):
            split.chunks = chunks


def chunks_from_cpu(
    chunk_lists: Iterable[Sequence[Tensor]],
    devices: Sequence[torch.device],
    streams: StreamByDevice,
) -> list[list[Tensor]]:
    """Return copies of lists of CPU tensors. Chunk ``i`` of each list is on ``devices[i]``.

    The copies run on side streams. ``streams``, the current streams, wait for the copies. A chunk
    whose device is the CPU is returned itself.
    """
    users: dict[torch.device, torch.Stream] = {}  # The streams that use the copies.
    sides: dict[torch.Stream, torch.Stream] = {}  # For each side stream: the stream of `users`.
    for device, current in streams.items():
        side = side_stream(device)
        if side is not None:
            users[device] = sides[side] = current
    # 1. Copy on the side streams. The copies start at once, even if the current streams have
    #    queued work.
    places = [(device, users.get(device)) for device in devices]
    copies = call_on_streams(sides, _copy_chunk_lists, chunk_lists, places)
    # 2. Make the current streams wait for the copies.
    for side, user in sides.items():
        user.wait_stream(side)
    return copies


def _copy_chunk_lists(
    chunk_lists: Iterable[Sequence[Tensor]],
    places: Sequence[tuple[torch.device, torch.Stream | None]],
) -> list[list[Tensor]]:
    # This loop is written out, because the calls of small functions would take as long as copies.
    copies = []
    for chunks in chunk_lists:
        row = []
        for chunk, (device, user) in zip(chunks, places, strict=False):
            if user is None:
                copy = to_device(chunk, device)
            else:
                copy = chunk.to(device, non_blocking=True)
                # Record that the current stream uses the copy. Otherwise the allocator could
                # reuse the memory on the side stream too early.
                # A subclass may refuse an operator that no caller uses.
                with _NO_GUARD if type(copy) in PLAIN_CLASSES else use_plain_operators():
                    copy.record_stream(user)
            row.append(copy)
        copies.append(row)
    return copies
