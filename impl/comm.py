"""Copies, chunks, concatenations and sums of tensors on several devices.

All functions accept any dtype; some accept sparse COO tensors. Work is queued on the current
streams of the devices, and the host waits only for copies to the CPU. A device is an ordinal of
the accelerator, or a ``torch.device`` or string with an index.

Letters used in this file: ``N`` is the size of a tensor along ``dim``, ``k`` the number of
devices, ``n`` the number of tensors per device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._arguments import argument, as_buffer_size, as_list, as_tensors, check_tensor
from ._bucket_copies import detached_copies
from ._buckets import DEFAULT_BUFFER_SIZE
from ._comm_checks import (
    as_chunk_sizes,
    check_broadcast_outputs,
    check_gather_inputs,
    check_not_given_with_out,
    check_scatter_outputs,
    check_sum_buffer_size,
)
from ._copies import row_major_copy, to_device
from ._devices import (
    DeviceLike,
    accelerator_type,
    as_target,
    call_on_device,
    device_at,
    device_index,
    is_of_type,
)
from ._devices import device_index as _get_device_index  # noqa: F401 - a test elsewhere replaces it
from ._split_and_cat import cat_on_device, cat_shape, copy_into_slices, split_into_views
from ._streams import call_on_stream, is_stream
from ._sums import reduce_lists, reduce_tensors
from ._torch_private import exclude_from_compilation

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]

#: One stream for each chunk; None keeps the current stream. There may be fewer or more streams
#: than chunks.
Streams = Sequence[torch.Stream | None] | None


@exclude_from_compilation
def broadcast(
    tensor: Tensor,
    devices: Iterable[DeviceLike] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Copy ``tensor`` to each of ``devices``, or into each tensor of ``out``.

    Args:
        tensor: Any shape, on any device, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        out: ``k`` tensors of the accelerator with the shape of ``tensor``, instead of
            ``devices``. Values are converted to their dtypes.

    Returns:
        ``k`` tensors. With ``out``, the tensors in ``out``. Otherwise ``tensor`` itself wherever
        its own device is listed, and a row-major copy of the same dtype for each other device.

    Raises:
        RuntimeError: Both or neither of ``devices`` and ``out`` are given; an ordinal is
            negative; a member of ``out`` is not on the accelerator or has another shape.
        ValueError: A device has no index or is the CPU.
        TypeError: An object is not a tensor.
    """
    if (devices is None) == (out is None):
        with argument("devices or out"):
            raise RuntimeError(
                "Exactly one of 'devices' and 'out' must be specified, "
                f"but got devices={devices} and out={out}"
            )
    check_tensor("tensor", tensor)
    if out is not None:
        out = as_tensors("out", out)
        check_broadcast_outputs(tensor, out)
        return [output.copy_(tensor, non_blocking=True) for output in out]
    targets = [*map(device_at, _as_ordinals(devices))]
    return [
        tensor if tensor.device == target else row_major_copy(tensor, target) for target in targets
    ]


@exclude_from_compilation
def broadcast_coalesced(
    tensors: Sequence[Tensor],
    devices: Iterable[DeviceLike],
    buffer_size: int = DEFAULT_BUFFER_SIZE,
) -> list[list[Tensor]]:
    """Copy many tensors to each of ``devices``. Small tensors share a transfer.

    Args:
        tensors: ``n`` tensors on ``devices[0]``, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        buffer_size: The largest number of bytes of small tensors in one transfer, not counting
            the gaps between them.

    Returns:
        ``k`` lists of ``n`` tensors. The first list contains ``tensors`` themselves. All other
        lists contain copies, also for a device that is listed twice. Copies are plain row-major
        tensors without history. They are aligned like new tensors, and each has its own version
        counter. The copies in one list may share one storage.

    Raises:
        ValueError: ``devices`` is empty; a device has no index or is the CPU.
        RuntimeError: A tensor is not on ``devices[0]``, or an ordinal is negative.
        TypeError: An object is not a tensor, or ``buffer_size`` is not an integer from 0.
    """
    buffer_size = as_buffer_size(buffer_size)
    tensors = as_tensors("tensors", tensors)
    ordinals = _as_ordinals(devices)
    if not ordinals:
        raise ValueError("Expected at least one device to broadcast to")
    if any(tensor.get_device() != ordinals[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {ordinals[0]}")
    targets = [*map(device_at, ordinals)]
    return call_on_device(targets[0], detached_copies, tensors, targets, buffer_size=buffer_size)


@exclude_from_compilation
def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike | None = None) -> Tensor:
    """Add tensors from several devices. The sum is on one of these devices.

    Args:
        inputs: ``k`` tensors of one shape on devices of the accelerator, dense or sparse COO.
        destination: The device of the sum. One of the inputs must be on it. By default the
            current device.

    Returns:
        The sum on ``destination``. The last input on that device is the first addend. The other
        inputs are added in order, so rounding does not depend on timing. A single input is
        returned itself.

    Raises:
        ValueError: ``inputs`` is empty; two shapes differ; ``destination`` is the CPU.
        AssertionError: An input is on the CPU.
        RuntimeError: No input is on ``destination``.
        TypeError: An object is not a tensor, or ``destination`` is no device.
    """
    with argument("inputs"):
        len(inputs)  # Raises TypeError for an iterator.
    addends = as_tensors("inputs", inputs)
    return reduce_tensors(addends, device_index(destination, optional=True))


@exclude_from_compilation
def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]],
    destination: DeviceLike | None = None,
    buffer_size: int = DEFAULT_BUFFER_SIZE,
) -> tuple[Tensor, ...]:
    """Add lists of tensors index by index. Small tensors share a transfer and an addition.

    Args:
        inputs: ``k`` lists of ``n`` tensors, each list on one device of the accelerator. The sum
            of sparse tensors is sparse; the sum of sparse and dense tensors is dense.
        destination: The device of the sums. One of the lists must be on it. By default the
            current device.
        buffer_size: The largest number of bytes of small tensors that are added in one operation.

    Returns:
        ``n`` sums on ``destination``, added in the order of :func:`reduce_add`. Dense sums are
        row-major tensors without history. They are aligned like new tensors, and each has its
        own version counter. They may share one storage. With a single list, a sum may share the
        memory of its addend.

    Raises:
        ValueError: The lists differ in length; two tensors with one index differ in size.
        AssertionError: An input is on the CPU.
        RuntimeError: No list is on ``destination``.
        TypeError: An object is not a tensor, ``destination`` is no device, or ``buffer_size`` is
            not a number.
    """
    check_sum_buffer_size(buffer_size)
    with argument("inputs"):
        rows = [as_tensors(f"inputs[{index}]", row) for index, row in enumerate(inputs)]
        columns = list(zip(*rows, strict=True))
    if not columns:
        return ()
    ordinal = device_index(destination, optional=True)
    return tuple(_reduce_columns(columns, ordinal, buffer_size))


@exclude_from_compilation
def scatter(
    tensor: Tensor,
    devices: Iterable[DeviceLike] | None = None,
    chunk_sizes: Sequence[int] | Iterator[int] | None = None,
    dim: int = 0,
    streams: Streams = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Split ``tensor`` along ``dim`` into one chunk per device, or into the tensors of ``out``.

    Args:
        tensor: A dense tensor on any device, of shape ``(*, N, *)`` with ``N`` at ``dim``.
        devices: ``k`` targets in output order. The same device may appear twice.
        chunk_sizes: ``k`` non-negative sizes that sum to ``N``. By default all chunks but the
            last have ``ceil(N / k)`` rows, so there may be fewer chunks than devices.
        dim: The dimension to split. Negative values count from the last one.
        streams: For each device, the stream to copy on, or None. A stream stays current for the
            following chunks until another stream is listed. The caller must synchronize with the
            streams.
        out: Tensors of the accelerator to fill, instead of ``devices`` and ``chunk_sizes``.
            Values are converted to their dtypes.

    Returns:
        At most ``k`` chunks, or ``out`` as a tuple. A chunk on the device of ``tensor`` is a
        view. A chunk on another device is a copy that keeps dense strides.

    Raises:
        ValueError: A device has no index or is the CPU; ``tensor`` and ``out`` are 0-dim.
        TypeError: Neither ``devices`` nor ``out`` is given; an object is not a tensor; ``dim`` is
            not an int.
        IndexError: ``tensor`` has no dimension ``dim``.
        RuntimeError: ``devices`` or ``out`` is empty; ``out`` is given beside ``devices`` or
            ``chunk_sizes``; a member of ``out`` is not on the accelerator or has another shape;
            ``chunk_sizes`` does not have ``k`` entries, has a negative one, or does not sum to
            ``N``; ``tensor`` is 0-dim; the ordinal of a chunk to copy is negative; a member of
            ``streams`` is no stream, or a stream of another device than its chunk.
    """
    with argument("streams"):
        _check_streams(streams)
    check_tensor("tensor", tensor)
    if out is not None:
        check_not_given_with_out(devices=devices, chunk_sizes=chunk_sizes)
        out = as_tensors("out", out)
        dim = check_scatter_outputs(tensor, out, dim)
        chunks = split_into_views(tensor, len(out), [output.size(dim) for output in out], dim)
        return _copy_chunks(chunks, out, streams)
    ordinals = _as_ordinals(devices)
    sizes = as_chunk_sizes(chunk_sizes, len(ordinals))
    chunks = split_into_views(tensor, len(ordinals), sizes, dim)
    return _chunks_to_devices(chunks, ordinals, streams)


@exclude_from_compilation
def gather(
    tensors: Sequence[Tensor],
    dim: int = 0,
    destination: DeviceLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Concatenate tensors from several devices along ``dim``, on one device or in ``out``.

    Args:
        tensors: ``k`` dense tensors of the accelerator, of one shape except at ``dim``.
        dim: The dimension to concatenate along. Negative values count from the last one.
        destination: A device of an accelerator, or the CPU (also -1, which is deprecated). None,
            or an accelerator without index, is the current device.
        out: A tensor to fill, on any device, instead of ``destination``. Values are converted
            to its dtype.

    Returns:
        ``out``, or a new tensor. Its dtype is that of the first input, or complex if any input
        is. It is channels-last if all inputs are, else row-major. The host waits only for a
        result on the CPU.

    Raises:
        ValueError: A tensor is 0-dim.
        IndexError: The first tensor has no dimension ``dim``.
        RuntimeError: ``tensors`` is empty; a tensor is not on the accelerator, or differs in
            another dimension than ``dim``; ``out`` is given beside ``destination`` or has
            another shape than the result; ``out`` is given, and an input requires grad while
            grad mode is on.
        TypeError: An object is not a tensor, ``destination`` is no device, or ``dim`` is not an
            int.
    """
    tensors = as_tensors("tensors", tensors)
    if out is None:
        device = as_target(destination)
        dim = check_gather_inputs(tensors, dim)
        return cat_on_device(tensors, dim, device)
    check_not_given_with_out(destination=destination)
    check_tensor("out", out)
    dim = check_gather_inputs(tensors, dim)
    shape = cat_shape(tensors, dim)
    with argument("out"):
        actual = list(out.shape)
    if actual != shape:
        raise RuntimeError(f"Expected out tensor to have shape {shape}, but got {actual}")
    return copy_into_slices(out, tensors, dim)


def _as_ordinals(devices: Iterable[DeviceLike] | None) -> list[int]:
    return [*map(device_index, as_list("devices", devices))]  # type: ignore[arg-type] # Python raises TypeError for None


def _reduce_columns(
    columns: Sequence[Sequence[Tensor]], ordinal: int, buffer_size: int
) -> list[Tensor]:
    """Return the sum of each column on the device ``ordinal``."""
    sums = {
        index: reduce_tensors(addends, ordinal)
        for index, addends in enumerate(columns)
        if all(tensor.is_sparse for tensor in addends)
    }
    rest = [index for index in range(len(columns)) if index not in sums]
    if rest:
        dense = [
            [tensor.to_dense() if tensor.is_sparse else tensor for tensor in columns[index]]
            for index in rest
        ]
        lists = list(zip(*dense, strict=True))
        sums.update(zip(rest, reduce_lists(lists, ordinal, buffer_size), strict=True))
    return [sums[index] for index in range(len(columns))]


# Copies of chunks on streams that the caller passes.
#
# The stream of a chunk stays current for the following chunks, until a chunk has another stream.


def _check_streams(streams: object) -> None:
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


def _chunks_to_devices(
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


def _copy_chunks(
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


# Code that copies torch.nn.parallel imports this undocumented name.
def _handle_complex(tensor: Tensor) -> Tensor:
    """Return a real view of a complex tensor; return any other tensor itself."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
