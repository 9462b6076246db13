"""Stand-ins for ``_gather`` and ``_gather_out`` of ``torch._C``."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ._arguments import as_tensor, integer, list_of, optional, primitive
from ._devices import (
    accelerator_name,
    accelerator_type,
    device_at_byte,
    format_sizes,
    is_on_accelerator,
    sizes_of,
    wrap_dim,
)


@primitive(
    tensors=list_of(as_tensor),
    dim=integer(),
    destination_index=optional(integer(-(2**31), 2**31 - 1)),
)
def gather(tensors: Sequence[Tensor], dim: int, destination_index: int | None = None) -> Tensor:
    """Stand in for ``torch._C._gather``.

    Args:
        tensors: The chunks, on the accelerator, with equal extents except along ``dim``.
        dim: The dimension along which the chunks are concatenated.
        destination_index: An ordinal; -1 for the CPU; None for the current device.

    Returns:
        A new tensor with the dtype of the first chunk. The tensor is channels-last if all chunks
        are, else row-major.

    Raises:
        RuntimeError: If there are no chunks; if a chunk is not on the accelerator, has the wrong
            shape, or requires a gradient in grad mode; if ``destination_index`` is below -1, for
            which the real primitive is undefined.
        IndexError: If the chunks have no dimension ``dim``, or are 0-dim.
    """
    sizes = _joined_sizes(tensors, dim, "has device {}")
    result = torch.empty(
        sizes,
        dtype=tensors[0].dtype,
        layout=tensors[0].layout,
        device=_destination_device(destination_index),
        memory_format=_memory_format(tensors),
    )
    return _copy_chunks(result, tensors, dim)


@primitive(tensors=list_of(as_tensor), out=as_tensor, dim=integer())
def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    """Stand in for ``torch._C._gather_out``.

    Returns:
        The object ``out``, which may be on any device. ``out`` keeps its dtype and strides.

    Raises:
        RuntimeError: As for ``gather``, or if ``out`` does not have the shape of the result.
        IndexError: As for ``gather``.
    """
    sizes = _joined_sizes(tensors, dim, "has device '{}'")
    if sizes_of(out) != sizes:
        raise RuntimeError(
            f"Expected out tensor to have shape {format_sizes(sizes)}, "
            f"but got {format_sizes(sizes_of(out))}"
        )
    return _copy_chunks(out, tensors, dim)


def _copy_chunks(out: Tensor, tensors: Sequence[Tensor], dim: int) -> Tensor:
    dim = wrap_dim(dim, out)
    slices = out.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for each, tensor in zip(slices, tensors, strict=True):
        each.copy_(tensor, non_blocking=is_on_accelerator(out))
    return out


def _joined_sizes(tensors: Sequence[Tensor], dim: int, device_error_format: str) -> list[int]:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    sizes = sizes_of(tensors[0])
    dim = wrap_dim(dim, tensors[0])
    for index, tensor in enumerate(tensors):
        _check_device(index, tensor, device_error_format)
        _check_shape(index, tensor, sizes, dim)
    sizes[dim] = sum(tensor.size(dim) for tensor in tensors)
    return sizes


def _check_device(index: int, tensor: Tensor, device_error_format: str) -> None:
    if not is_on_accelerator(tensor):
        raise RuntimeError(
            f"Expected all input tensors to be {accelerator_name()} tensors, "
            f"but tensor at index {index} {device_error_format.format(tensor.device)}"
        )


def _check_shape(index: int, tensor: Tensor, first_sizes: list[int], dim: int) -> None:
    if tensor.dim() != len(first_sizes):
        raise RuntimeError(
            "Expected all input tensors to have the same number of dimensions, "
            f"but tensor at index {index} has {tensor.dim()} dimensions, "
            f"(expected {len(first_sizes)})"
        )
    # A 0-dim tensor passes `wrap_dim`, but `tensor.size(dim)` raises an IndexError for it.
    expected = [*first_sizes[:dim], tensor.size(dim), *first_sizes[dim + 1 :]]
    if sizes_of(tensor) != expected:
        raise RuntimeError(
            f"Input tensor at index {index} has invalid shape {format_sizes(sizes_of(tensor))}, "
            f"but expected {format_sizes(expected)}"
        )


def _memory_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    return formats.pop() if len(formats) == 1 else torch.contiguous_format


def _destination_device(index: int | None) -> torch.device:
    if index is None:
        return torch.device(accelerator_type(), torch.accelerator.current_device_index())
    if index == -1:
        return torch.device("cpu")
    return device_at_byte(index)
