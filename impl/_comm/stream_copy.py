"""Copies of chunks on streams that the caller passes.

The stream of a chunk stays current for the following chunks, until a chunk has another stream.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from .._device import accelerator_type, device_at, use_stream
from .copy import to_device

#: One stream for each chunk; None keeps the current stream. There may be fewer or more streams
#: than chunks.
Streams = Sequence[torch.Stream | None] | None


def check_streams(streams: object) -> None:
    """Check that ``streams`` is None or a sequence of streams and Nones."""
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
    """Copy each chunk to its device, unless it is already there."""
    results = []
    with ExitStack() as stream_stack:
        # If there are fewer chunks than devices, the remaining devices are not checked.
        for index, (chunk, ordinal) in enumerate(zip(chunks, ordinals, strict=False)):
            if chunk.get_device() != ordinal:
                _enter_stream(stream_stack, streams, index, ordinal)
                chunk = to_device(chunk, device_at(ordinal))
            results.append(chunk)
    return tuple(results)


def copy_chunks(
    chunks: Sequence[Tensor], outputs: Sequence[Tensor], streams: Streams
) -> tuple[Tensor, ...]:
    """Copy each chunk into its output, and return the outputs."""
    with ExitStack() as stream_stack:
        for index, (chunk, output) in enumerate(zip(chunks, outputs, strict=True)):
            _enter_stream(stream_stack, streams, index, output.get_device())
            output.copy_(chunk, non_blocking=True)
    return tuple(outputs)


def _enter_stream(
    stream_stack: ExitStack,
    streams: Streams,
    index: int,
    ordinal: int,
) -> None:
    """Make the stream for the chunk ``index`` current, if there is one.

    ``stream_stack`` holds the context of the stream that was current for the previous chunk.
    """
    stream = streams[index] if streams is not None and index < len(streams) else None
    if stream is not None:
        if stream.device_index != ordinal:
            raise RuntimeError(
                f"Expected the device associated with the stream at index {index} "
                f"(was {stream.device_index}) to match the device supplied at that index "
                f"(expected {ordinal})"
            )
        stream_stack.close()
        stream_stack.enter_context(use_stream(stream))
