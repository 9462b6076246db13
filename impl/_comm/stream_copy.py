"""Copies of chunks on streams that the caller passes.

The stream of a chunk stays current for the following chunks, until a chunk has another stream.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._device import accelerator_type, call_on_stream, device_at, is_of_type, is_stream
from .copy import to_device

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
