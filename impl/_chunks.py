"""The lengths of chunks, and the split of several tensors into chunks.

Weights are the public argument ``chunk_sizes``: sizes or proportions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ._arguments import argument
from ._copies import PLAIN_CLASSES, split_into_views, to_device, without_grad
from ._devices import is_on_cpu
from ._streams import call_on_streams, side_stream
from ._torch_private import use_plain_operators

#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def chunk_lengths(extent: int, count: int, weights: Sequence[float] | None = None) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``.

    ``weights`` are either chunk sizes that sum to ``extent``, or proportions: each length is
    rounded up until no rows are left. By default every length but the last is
    ``ceil(extent / count)``. The last devices have no length if no rows are left for them. A
    device with weight 0 before them has the length 0. If ``extent`` is 0, there are ``count``
    lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if weights is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _weighted_lengths(extent, list(weights))


def check_weights(weights: Sequence[float], count: int | None) -> None:
    """Raise ValueError unless ``weights`` are ``count`` finite numbers >= 0, and one is > 0.

    If ``count`` is None, any number of weights is accepted.
    """
    with argument("chunk_sizes"):
        if len(weights) != count and count is not None:
            raise ValueError(f"{len(weights)} chunk sizes for {count} devices")
        if not all(0 <= weight < math.inf for weight in weights):
            raise ValueError(f"negative or infinite chunk size in {list(weights)}")
        if not any(weights):
            raise ValueError(f"every chunk size is 0 in {list(weights)}")


def _weighted_lengths(extent: int, weights: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, weight in enumerate(weights):
        share = rows * weight / sum(weights[index:])
        lengths.append(min(rows, math.ceil(share - _ROUNDING)))
        rows -= lengths[-1]
        if rows == 0:
            break
    return lengths


# The split of several tensors into chunks, and the copies of chunks on their devices.


_NO_GUARD = nullcontext()
#: For each device that has streams: its current stream.
StreamByDevice = Mapping[torch.device, torch.Stream]


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
    streams: StreamByDevice,
) -> None:
    """Split each tensor into one chunk for each of ``devices``, and move the chunks there.

    A chunk on the device of its tensor is a view. No chunk is attached to the graph of its tensor.
    ``streams`` has the current stream of each device that has streams.
    """
    # Split all tensors first: a tensor that cannot be split raises before any device has work.
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
    splits: Sequence[SplitTensor], devices: Sequence[torch.device], streams: StreamByDevice
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
    call_on_streams(sides, _copy_chunks, splits, places)
    # 2. Make the current streams wait for the copies.
    for side, user in sides.items():
        user.wait_stream(side)


def _copy_chunks(
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
