"""Copies of chunks on streams that the caller names.

One of those streams at a time is current: from the chunk that it comes with until the chunk that
comes with another one.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from .._device import accelerator_type, device_at, use_stream
from .copy import to_device

__all__ = ["Streams", "check_streams", "chunks_to_devices", "copy_chunks"]

#: One stream per chunk, None for the current one; shorter or longer than the chunks at will.
Streams = Sequence[torch.Stream | None] | None


def check_streams(streams: object) -> None:
    """Refuse what is no sequence of streams and Nones."""
    if streams is None:
        return
    if not isinstance(streams, Sequence):
        raise RuntimeError("Expected a sequence in THPUtils_PySequence_to_CUDAStreamList")
    if not all(stream is None or isinstance(stream, torch.Stream) for stream in streams):
        raise RuntimeError(
            "Unknown data type found in stream list. "
            f"Need torch.{accelerator_type()}.Stream or None"
        )


def chunks_to_devices(
    chunks: Sequence[Tensor],
    ordinals: Sequence[int],
    streams: Streams,
) -> tuple[Tensor, ...]:
    """Send each chunk to its device; one that is there already stays itself.

    Raises:
        RuntimeError: The ordinal of a chunk to send is negative, or its stream is of another
            device.
    """
    sent = []
    with ExitStack() as current:
        # There may be fewer chunks than devices: the surplus ones are not even looked at.
        for index, (chunk, ordinal) in enumerate(zip(chunks, ordinals, strict=False)):
            if chunk.get_device() != ordinal:
                _enter_stream(current, streams, index, ordinal)
                chunk = to_device(chunk, device_at(ordinal))
            sent.append(chunk)
    return tuple(sent)


def copy_chunks(
    chunks: Sequence[Tensor], outputs: Sequence[Tensor], streams: Streams
) -> tuple[Tensor, ...]:
    """Copy each chunk into its output, and return the outputs."""
    with ExitStack() as current:
        for index, (chunk, output) in enumerate(zip(chunks, outputs, strict=True)):
            _enter_stream(current, streams, index, output.get_device())
            output.copy_(chunk, non_blocking=True)
    return tuple(outputs)


def _enter_stream(
    current: ExitStack,
    streams: Streams,
    index: int,
    ordinal: int,
) -> None:
    """Make the stream at ``index``, if there is one, current in place of the one before it."""
    stream = streams[index] if streams is not None and index < len(streams) else None
    if stream is not None:
        _check_stream_device(stream, index, ordinal)
        current.close()
        current.enter_context(use_stream(stream))


def _check_stream_device(stream: torch.Stream, index: int, ordinal: int) -> None:
    """Refuse a stream of another device than the one its chunk goes to."""
    if stream.device_index != ordinal:
        raise RuntimeError(
            f"Expected the device associated with the stream at index {index} "
            f"(was {stream.device_index}) to match the device supplied at that index "
            f"(expected {ordinal})"
        )
