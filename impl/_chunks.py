"""The lengths of chunks, the split of several tensors into chunks, and the copies of chunks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._arguments import argument
from ._copies import PLAIN_CLASSES, split_into_views, to_device
from ._devices import accelerator_type, device_at, is_of_type, is_on_cpu
from ._grad_mode import without_grad
from ._streams import call_on_stream, call_on_streams, is_stream, side_stream
from ._torch_private import use_plain_operators

#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def chunk_lengths(
    extent: int, count: int, chunk_sizes: Sequence[float] | None = None
) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``.

    ``chunk_sizes`` either sum to ``extent``, or are proportions: each length is rounded up until
    no rows are left. By default every length but the last is ``ceil(extent / count)``. The last
    devices have no length if no rows are left for them. A device with size 0 before them has the
    length 0. If ``extent`` is 0, there are ``count`` lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if chunk_sizes is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _proportional_lengths(extent, list(chunk_sizes))


def check_chunk_sizes(chunk_sizes: Sequence[float], count: int | None) -> None:
    """Raise ValueError unless there are ``count`` finite numbers >= 0, and one is > 0.

    If ``count`` is None, any number of sizes is accepted.
    """
    with argument("chunk_sizes"):
        if len(chunk_sizes) != count and count is not None:
            raise ValueError(f"{len(chunk_sizes)} chunk sizes for {count} devices")
        if not all(0 <= size < math.inf for size in chunk_sizes):
            raise ValueError(f"negative or infinite chunk size in {list(chunk_sizes)}")
        if not any(chunk_sizes):
            raise ValueError(f"every chunk size is 0 in {list(chunk_sizes)}")


def _proportional_lengths(extent: int, chunk_sizes: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, size in enumerate(chunk_sizes):
        share = rows * size / sum(chunk_sizes[index:])
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


# Copies of chunks on streams that the caller passes.
#
# The stream of a chunk stays current for the following chunks, until a chunk has another stream.


#: One stream for each chunk; None keeps the current stream. There may be fewer or more streams
#: than chunks.
Streams = Sequence[torch.Stream | None] | None


def check_streams(streams: object) -> None:
    """Check that ``streams`` is None or a sequence of the accelerator's streams and Nones."""
    if streams is None:
        return
    if not isinstance(streams, Sequence):
        raise RuntimeError("Expected a sequence in THPUtils_PySequence_to_CUDAStreamList")
    if not all(stream is None or is_stream(stream) for stream in streams):
        raise RuntimeError(
            "Unknown data type found in stream list. "
            f"Need torch.{accelerator_type()}.Stream or None"
        )
    for index, stream in enumerate(streams):
        if stream is not None and not is_of_type(stream.device, accelerator_type()):
            raise RuntimeError(
                f"Expected streams of {accelerator_type()} devices, but the stream at index "
                f"{index} is on {stream.device}"
            )


def chunks_to_devices(
    chunks: Sequence[Tensor],
    ordinals: Sequence[int],
    streams: Streams,
) -> tuple[Tensor, ...]:
    """Return the chunks on their devices. A chunk that is already on its device is not copied."""
    results = []
    stream = None
    # If there are fewer chunks than devices, the remaining devices are not checked.
    for index, (chunk, ordinal) in enumerate(zip(chunks, ordinals, strict=False)):
        if chunk.get_device() != ordinal:
            stream = _find_stream(streams, index, ordinal) or stream
            chunk = _call_on(stream, to_device, chunk, device_at(ordinal))
        results.append(chunk)
    return tuple(results)


def copy_chunks(
    chunks: Sequence[Tensor], outputs: Sequence[Tensor], streams: Streams
) -> tuple[Tensor, ...]:
    """Copy each chunk into its output, and return the outputs."""
    stream = None
    for index, (chunk, output) in enumerate(zip(chunks, outputs, strict=True)):
        stream = _find_stream(streams, index, output.get_device()) or stream
        _call_on(stream, partial(output.copy_, non_blocking=True), chunk)
    return tuple(outputs)


def _call_on(stream: torch.Stream | None, function: Callable[..., Tensor], *args: Any) -> Tensor:
    return function(*args) if stream is None else call_on_stream(stream, function, *args)


def _find_stream(streams: Streams, index: int, ordinal: int) -> torch.Stream | None:
    """Return the stream for the chunk ``index``, or None.

    Raise RuntimeError if the stream does not belong to the device ``ordinal``.
    """
    stream = streams[index] if streams is not None and index < len(streams) else None
    if stream is not None and stream.device_index != ordinal:
        raise RuntimeError(
            f"Expected the device associated with the stream at index {index} "
            f"(was {stream.device_index}) to match the device supplied at that index "
            f"(expected {ordinal})"
        )
    return stream
