"""Stand-ins for gather."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ._devices import (
    accelerator,
    accelerator_name,
    device,
    format_sizes,
    is_on_accelerator,
    primitive,
    wrap_dim,
)


@primitive
def gather(tensors: Sequence[Tensor], dim: int, destination_index: int | None = None) -> Tensor:
    """Stand in for ``torch._C._gather``.

    Args:
        tensors: The chunks, on the accelerator, with equal extents except along ``dim``.
        dim: The dimension along which the chunks are joined.
        destination_index: An ordinal, -1 for the CPU, None for the current device.

    Returns:
        A new tensor with the dtype of the first chunk: channels-last if all chunks are, else
        row-major.

    Raises:
        RuntimeError: there are no chunks; a chunk is not on the accelerator, has the wrong shape,
            or requires a gradient in grad mode; the destination is below -1 (undefined in the real
            primitive).
        IndexError: the chunks have no dimension ``dim``, or no dimension.
    """
    sizes = _joined_sizes(tensors, dim, "has device {}")
    result = torch.empty(
        sizes,
        dtype=tensors[0].dtype,
        layout=tensors[0].layout,
        device=_destination(destination_index),
        memory_format=_memory_format(tensors),
    )
    return _fill(result, tensors, dim)


@primitive
def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    """Stand in for ``torch._C._gather_out``.

    Returns:
        The object ``out``, which may be on any device. It keeps its dtype and strides.

    Raises:
        RuntimeError: as ``gather``; ``out`` has another shape than the joined chunks.
        IndexError: as ``gather``.
    """
    sizes = _joined_sizes(tensors, dim, "has device '{}'")
    if list(out.shape) != sizes:
        raise RuntimeError(
            f"Expected out tensor to have shape {format_sizes(sizes)}, "
            f"but got {format_sizes(out.shape)}"
        )
    return _fill(out, tensors, dim)


def _fill(out: Tensor, tensors: Sequence[Tensor], dim: int) -> Tensor:
    dim = wrap_dim(dim, out)
    parts = out.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor, non_blocking=is_on_accelerator(out))
    return out


def _joined_sizes(tensors: Sequence[Tensor], dim: int, device_text: str) -> list[int]:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dim = wrap_dim(dim, tensors[0])
    sizes = list(tensors[0].shape)
    for index, tensor in enumerate(tensors):
        _check_device(index, tensor, device_text)
        _check_shape(index, tensor, sizes, dim)
    sizes[dim] = sum(tensor.size(dim) for tensor in tensors)
    return sizes


def _check_device(index: int, tensor: Tensor, device_text: str) -> None:
    if not is_on_accelerator(tensor):
        raise RuntimeError(
            f"Expected all input tensors to be {accelerator_name()} tensors, "
            f"but tensor at index {index} {device_text.format(tensor.device)}"
        )


def _check_shape(index: int, tensor: Tensor, first: list[int], dim: int) -> None:
    if tensor.dim() != len(first):
        raise RuntimeError(
            "Expected all input tensors to have the same number of dimensions, "
            f"but tensor at index {index} has {tensor.dim()} dimensions, (expected {len(first)})"
        )
    # `wrap_dim` accepts a scalar; `size` raises for it.
    expected = [*first[:dim], tensor.size(dim), *first[dim + 1 :]]
    if list(tensor.shape) != expected:
        raise RuntimeError(
            f"Input tensor at index {index} has invalid shape {format_sizes(tensor.shape)}, "
            f"but expected {format_sizes(expected)}"
        )


def _memory_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    return formats.pop() if len(formats) == 1 else torch.contiguous_format


def _destination(index: int | None) -> torch.device:
    if index is None:
        return torch.device(accelerator(), torch.accelerator.current_device_index())
    if index == -1:
        return torch.device("cpu")
    return device(index)
