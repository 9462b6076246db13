"""Splits and concatenations of tensors along a dimension."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ._arguments import as_int
from ._copies import needs_grad
from ._devices import is_cpu
from ._torch_private import is_any_autocast_on


def wrap_dim(dim: int, num_dims: int) -> int:
    """Return ``dim``, of a tensor with ``num_dims`` dimensions, as a non-negative number."""
    dim = as_int("dim", dim)
    # As in PyTorch, a 0-dim tensor has the dimensions 0 and -1.
    extent = max(num_dims, 1)
    if not -extent <= dim < extent:
        raise IndexError(
            "Dimension out of range (expected to be in range of "
            f"[{-extent}, {extent - 1}], but got {dim})"
        )
    return dim % extent


def split_into_views(
    tensor: Tensor, count: int, lengths: Sequence[int] | None, dim: int
) -> tuple[Tensor, ...]:
    """Split ``tensor`` into views of ``lengths`` rows, or evenly into at most ``count`` views."""
    dim = wrap_dim(dim, tensor.dim())
    if lengths is None:
        return torch.chunk(tensor, count, dim)
    return torch.split_with_sizes(tensor, list(lengths), dim)


def cat_on_device(tensors: Sequence[Tensor], dim: int, device: torch.device) -> Tensor:
    """Concatenate one or more ``tensors`` along the non-negative ``dim``, on ``device``.

    The new tensor has the layout and dtype of the first input, but a complex dtype if any input is
    complex. It is channels-last if all inputs are, else row-major. The host waits only for copies
    to the CPU.
    """
    first = tensors[0]
    # One operator is faster, but only tensors of one kind are not converted by it or by autocast.
    kinds = {(type(each), each.layout, each.dtype, each.device) for each in tensors}
    is_one_kind = kinds == {(Tensor, torch.strided, first.dtype, device)}
    if is_one_kind and not (is_any_autocast_on() or needs_grad(tensors)):
        if first.is_quantized:
            _check_quantizers(tensors)
        return torch.cat([*tensors], dim)
    out = torch.empty(
        cat_shape(tensors, dim),
        dtype=_cat_dtype(tensors),
        layout=first.layout,
        device=device,
        memory_format=_memory_format(tensors),
    )
    return copy_into_slices(out, tensors, dim)


def cat_shape(tensors: Sequence[Tensor], dim: int) -> list[int]:
    """Return the shape of ``tensors`` concatenated along ``dim``."""
    shape = list(tensors[0].shape)
    shape[dim] = sum([tensor.size(dim) for tensor in tensors])
    return shape


def copy_into_slices(out: Tensor, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate ``tensors`` along ``dim`` into ``out``. Return ``out``."""
    is_awaited = is_cpu(out.device)
    slices = torch.split_with_sizes(out, [tensor.size(dim) for tensor in tensors], dim)
    for part, tensor in zip(slices, tensors, strict=True):
        part.copy_(tensor, non_blocking=not is_awaited)
    return out


def promote_dtypes(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return ``tensors`` in the dtype to which PyTorch promotes theirs. Gradients flow back.

    Tensors without elements count only if no other does: ``torch.tensor([])`` is float32.
    """
    counted = [each for each in tensors if each.numel() or each.requires_grad] or tensors
    dtype = functools.reduce(torch.promote_types, [each.dtype for each in counted])
    return [tensor.to(dtype) for tensor in tensors]


def _cat_dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    dtypes = [tensor.dtype for tensor in tensors]
    if len({*dtypes}) == 1 or dtypes[0].is_complex:
        return dtypes[0]
    complex_dtypes = [dtype for dtype in dtypes if dtype.is_complex]
    # A real result would lose the imaginary parts.
    return functools.reduce(torch.promote_types, complex_dtypes, dtypes[0])


def _check_quantizers(tensors: Sequence[Tensor]) -> None:
    """Raise ValueError if scales or zero points differ: ``torch.cat`` takes those of the first."""
    found = [(tensor.q_scale(), tensor.q_zero_point()) for tensor in tensors]
    if len({*found}) > 1:
        raise ValueError(
            "quantized tensors with different scales or zero points cannot be concatenated: "
            f"return them dequantized ({', '.join(map(str, found))})"
        )


def _memory_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    """Return channels-last if all ``tensors`` are, else row-major."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensors[0].dim())
    if last and all(each.layout is torch.strided and _is_channels_last(each) for each in tensors):
        return last
    return torch.contiguous_format


def _is_channels_last(tensor: Tensor) -> bool:
    """Return whether the strides increase from channels, width, height, depth to batch."""
    shape, strides, dims = tensor.shape, tensor.stride(), tensor.dim()
    if dims not in (4, 5) or strides[1] == 0 or tensor.numel() == 0:
        return False
    min_stride = 0
    for dim in (1, *range(dims - 1, 1, -1), 0):
        # Images of one element have the same strides in both formats and count as row-major.
        is_ambiguous = dim == 0 and min_stride == strides[1]
        if strides[dim] < min_stride or is_ambiguous:
            return False
        min_stride = strides[dim] * shape[dim]
    return True
