"""Stand-ins for ``_scatter`` and ``_scatter_out`` of ``torch._C``."""

from collections.abc import Sequence
from ctypes import c_int16

import torch
from torch import Tensor

from ._arguments import anything, as_tensor, integer, list_of, optional, primitive
from ._devices import (
    accelerator_name,
    device_at,
    format_sizes,
    is_on_accelerator,
    sizes_of,
    wrap_dim,
)
from ._streams import StreamGuard, as_streams, stream_at


@primitive(
    tensor=as_tensor,
    devices=list_of(integer()),
    chunk_sizes=optional(list_of(integer())),
    dim=integer(),
    streams=anything,
)
def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: object = None,
) -> list[Tensor]:
    """Stand in for ``torch._C._scatter``.

    Returns:
        The chunks in order, at most one for each device. The chunk for the device of ``tensor`` is
        a view of ``tensor``. Other chunks are copies, which keep the strides of dense chunks.

    Raises:
        RuntimeError: If there are no devices; if the numbers of sizes and devices differ; if
            ``tensor`` is 0-dim; if a size is negative or the sum of the sizes is wrong; if a
            stream belongs to another device; if an ordinal is negative.
        IndexError: If ``tensor`` has no dimension ``dim``.
    """
    stream_list = as_streams(streams)
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    chunks = _split(tensor, len(devices), chunk_sizes, dim)
    with StreamGuard() as current:
        for index, (chunk, ordinal) in enumerate(zip(chunks, devices, strict=False)):
            ordinal = c_int16(ordinal).value
            # Streams and ordinals are checked only for chunks that are copied.
            if chunk.get_device() != ordinal:
                current.set(stream_at(stream_list, index, ordinal))
                chunks[index] = _copy(chunk, ordinal)
    return chunks


@primitive(tensor=as_tensor, out=list_of(as_tensor), dim=integer(), streams=anything)
def scatter_out(
    tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams: object = None
) -> list[Tensor]:
    """Stand in for ``torch._C._scatter_out``.

    Returns:
        The tensors of ``out`` in a new list, overwritten with consecutive chunks. They keep their
        dtypes and strides.

    Raises:
        RuntimeError: If there are no outputs; if an output is not on the accelerator or has the
            wrong shape; if the sum of the sizes is wrong; if an output is 0-dim, for which the
            real primitive is undefined; if a stream belongs to another device. In the last case
            earlier outputs are already written.
        IndexError: If ``tensor`` has no dimension ``dim``.
    """
    stream_list = as_streams(streams)
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    dim = wrap_dim(dim, tensor)
    for index, each in enumerate(out):
        _check_out(tensor, index, each, dim)
    sizes = [each.size(dim) for each in out]
    _check_total_size(tensor, sizes, dim)

    with StreamGuard() as current:
        for index, chunk in enumerate(tensor.split_with_sizes(sizes, dim)):
            current.set(stream_at(stream_list, index, out[index].get_device()))
            out[index].copy_(chunk, non_blocking=True)
    return list(out)


def _split(tensor: Tensor, count: int, sizes: Sequence[int] | None, dim: int) -> list[Tensor]:
    if sizes is not None and len(sizes) != count:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, "
            f"but got len(devices) = {count} and len(chunk_sizes) = {len(sizes)}"
        )
    dim = wrap_dim(dim, tensor)
    if sizes is None:
        return list(tensor.chunk(count, dim))
    return list(tensor.split_with_sizes(list(sizes), dim))


def _copy(chunk: Tensor, ordinal: int) -> Tensor:
    return chunk.to(
        device_at(ordinal), non_blocking=True, copy=False, memory_format=torch.preserve_format
    )


def _check_out(tensor: Tensor, index: int, out: Tensor, dim: int) -> None:
    if not is_on_accelerator(out):
        raise RuntimeError(
            f"Expected all output tensors to be {accelerator_name()} tensors, "
            f"but output tensor at index {index} has device '{out.device}'"
        )
    if _without_dim(sizes_of(out), dim) != _without_dim(sizes_of(tensor), dim):
        raise RuntimeError(
            f"Output tensor at index {index} has incorrect shape: {format_sizes(out.shape)}. "
            f"Expected same shape except for scatter dim {dim} as the source tensor: "
            f"{format_sizes(tensor.shape)}"
        )
    if out.dim() == 0:
        raise RuntimeError(
            f"scatter needs tensors of one dimension or more: output {index} has none"
        )


def _check_total_size(tensor: Tensor, sizes: Sequence[int], dim: int) -> None:
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match the source "
            f"tensor size at dim {dim}. Expected {tensor.size(dim)}, "
            f"but got total size {sum(sizes)}"
        )


def _without_dim(sizes: Sequence[int], dim: int) -> tuple[int, list[int]]:
    """Return the number of dimensions, and the sizes of all dimensions but ``dim``."""
    return len(sizes), [size for index, size in enumerate(sizes) if index != dim]
