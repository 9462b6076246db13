"""Slices of a tensor along one dimension: cutting them off and joining them again.

``N`` is the extent of a tensor along ``dim``, ``k`` the number of slices.
"""

import functools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .._device import is_cpu

__all__ = [
    "cat_on_device",
    "cat_shape",
    "copy_into_slices",
    "is_wrapper",
    "split_into_views",
    "wrap_dim",
]


def is_wrapper(tensor: Tensor) -> bool:
    """Return whether the class of ``tensor`` implements the operations itself.

    It need not have them all: jagged nested tensors and masked tensors, for example, have
    ``chunk`` and not ``split_with_sizes``.
    """
    return type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def wrap_dim(dim: int, dims: int) -> int:
    """Count ``dim`` from the front.

    Raises:
        IndexError: A tensor with ``dims`` dimensions has no ``dim``.
    """
    # A tensor without dimensions is addressed as if it had one.
    extent = max(dims, 1)
    if not -extent <= dim < extent:
        raise IndexError(
            "Dimension out of range (expected to be in range of "
            f"[{-extent}, {extent - 1}], but got {dim})"
        )
    return dim % extent


def split_into_views(
    tensor: Tensor, count: int, chunk_sizes: Sequence[int] | None, dim: int
) -> tuple[Tensor, ...]:
    """Cut ``tensor`` into views along ``dim``.

    Args:
        tensor: Shape ``(*, N, *)`` with ``N`` at ``dim``.
        count: ``k``, where the slices are to be of equal size but for the last.
        chunk_sizes: Extents that sum to ``N``, or None.
        dim: The dimension to cut.

    Returns:
        ``len(chunk_sizes)`` views; without sizes at most ``count``, fewer where ``N`` does not
        fill them.

    Raises:
        IndexError: ``tensor`` has no dimension ``dim``.
        RuntimeError: ``tensor`` is 0-dim, a size is negative, or the sizes do not sum to ``N``.
        NotImplementedError: ``tensor`` is sparse.
    """
    dim = wrap_dim(dim, tensor.dim())
    if chunk_sizes is None:
        return torch.chunk(tensor, count, dim)
    return torch.split_with_sizes(tensor, list(chunk_sizes), dim)


def cat_on_device(tensors: Sequence[Tensor], dim: int, device: torch.device) -> Tensor:
    """Copy ``tensors`` one behind the other along ``dim`` into a new tensor on ``device``.

    Args:
        tensors: One or more, equal in shape but for ``dim``, on any devices.
        dim: The dimension to join along, counted from the front.
        device: Where the result is wanted.

    Returns:
        A tensor with the first one's dtype and layout, but complex if any input is;
        channels-last where all inputs are, else row-major. Only a copy to the CPU is waited for.
    """
    out = torch.empty(
        cat_shape(tensors, dim),
        dtype=_cat_dtype(tensors),
        layout=tensors[0].layout,
        device=device,
        memory_format=_common_memory_format(tensors),
    )
    return copy_into_slices(out, tensors, dim)


def cat_shape(tensors: Sequence[Tensor], dim: int) -> list[int]:
    """Give the shape of ``tensors`` joined along ``dim``."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    return shape


def copy_into_slices(out: Tensor, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Copy ``tensors`` one behind the other along ``dim`` into ``out``, and return it.

    Only a copy to the CPU is waited for.
    """
    is_awaited = is_cpu(out.device)
    slices = torch.split_with_sizes(out, [tensor.size(dim) for tensor in tensors], dim)
    for piece, tensor in zip(slices, tensors, strict=True):
        piece.copy_(tensor, non_blocking=not is_awaited)
    return out


def _cat_dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    dtypes = [tensor.dtype for tensor in tensors]
    complex_dtypes = [dtype for dtype in dtypes if dtype.is_complex]
    if not complex_dtypes or dtypes[0].is_complex:
        return dtypes[0]
    # In a real tensor the imaginary parts would be lost.
    return functools.reduce(torch.promote_types, [dtypes[0], *complex_dtypes])


def _common_memory_format(tensors: Iterable[Tensor]) -> torch.memory_format:
    """Give channels-last where all of ``tensors`` agree on it, else row-major."""
    formats = {_memory_format(tensor) for tensor in tensors}
    return formats.pop() if len(formats) == 1 else torch.contiguous_format


def _memory_format(tensor: Tensor) -> torch.memory_format:
    if tensor.layout is not torch.strided or not _steps_like_channels_last(tensor):
        return torch.contiguous_format
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def _steps_like_channels_last(tensor: Tensor) -> bool:
    """Tell whether the strides grow from channels over space to batch, without ambiguity."""
    shape, strides, dims = tensor.shape, tensor.stride(), tensor.dim()
    if dims not in (4, 5) or strides[1] == 0 or tensor.numel() == 0:
        return False
    least = 0
    for dim in (1, *range(dims - 1, 1, -1), 0):
        # Images of one element have the same strides in both formats; they count as row-major.
        ambiguous = dim == 0 and least == strides[1]
        if strides[dim] < least or ambiguous:
            return False
        least = strides[dim] * shape[dim]
    return True
