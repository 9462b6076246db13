"""Chunks of tensors, copied to their devices."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ._copies import PLAIN_CLASSES, to_device
from ._devices import is_on_cpu
from ._settings import without_grad
from ._split_and_cat import split_into_views
from ._streams import call_on_streams, side_stream
from ._torch_private import use_plain_operators

_NO_GUARD = nullcontext()
#: For each device that has streams: its current stream.
_StreamByDevice = Mapping[torch.device, torch.Stream]


@dataclass(slots=True)
class SplitTensor:
    """A tensor to split along ``dim``, and its chunks after :func:`split_and_move`."""

    tensor: Tensor
    lengths: Sequence[int] | None  # None for the lengths of ``Tensor.chunk``.
    dim: int
    chunks: Sequence[Tensor] = ()


@without_grad
def split_and_move(
    splits: Iterable[SplitTensor],
    devices: Sequence[torch.device],
    streams: _StreamByDevice,
) -> None:
    """Split each tensor into one chunk for each of ``devices``, and move the chunks there.

    A chunk on the device of its tensor is a view. No chunk is attached to the graph of its tensor.
    ``streams`` has the current stream of each device that has streams.
    """
    # Split all tensors first: a tensor that cannot be split raises before any copy begins.
    on_cpu: list[SplitTensor] = []
    elsewhere: list[SplitTensor] = []
    for split in splits:
        split.chunks = split_into_views(split.tensor, len(devices), split.lengths, split.dim)
        (on_cpu if is_on_cpu(split.tensor) else elsewhere).append(split)
    for split in elsewhere:
        source = split.tensor.device
        split.chunks = [
            chunk if device == source else to_device(chunk, device)
            for chunk, device in zip(split.chunks, devices, strict=False)
        ]
    if on_cpu:
        move_from_cpu(on_cpu, devices, streams)


def move_from_cpu(
    splits: Sequence[SplitTensor], devices: Sequence[torch.device], streams: _StreamByDevice
) -> None:
    """Move the chunks of CPU tensors: chunk ``i`` of each tensor to ``devices[i]``.

    The copies run on side streams. ``streams``, the current streams, wait for the copies. A chunk
    whose device is the CPU stays there.
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
    call_on_streams(sides, _copy_from_cpu, splits, places)
    # 2. Make the current streams wait for the copies.
    for side, user in sides.items():
        user.wait_stream(side)


def _copy_from_cpu(
    splits: Sequence[SplitTensor], places: Sequence[tuple[torch.device, torch.Stream | None]]
) -> None:
    # This loop is written out, because the calls of small functions would take as long as copies.
    for split in splits:
        copies = []
        for chunk, (device, user) in zip(split.chunks, places, strict=False):
            if user is None:
                copy = to_device(chunk, device)
            else:
                copy = chunk.to(device, non_blocking=True)
                # Record that the current stream uses the copy. Otherwise the allocator could
                # reuse the memory on the side stream too early.
                # A subclass may refuse an operator that no caller uses.
                with _NO_GUARD if type(copy) in PLAIN_CLASSES else use_plain_operators():
                    copy.record_stream(user)
            copies.append(copy)
        split.chunks = copies
