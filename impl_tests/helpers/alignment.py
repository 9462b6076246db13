"""Tensors that are mostly misaligned if they are stored without gaps, and a check of addresses."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from impl._devices import alignment_on

#: Shapes of tensors that are mostly misaligned if they are stored without gaps.
_SHAPES = [(3,), (), (5, 7), (0, 2), (), (2, 1, 3), (16,), (3,), (1,)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
DTYPES = [*FLOATS, torch.int8, torch.int32, torch.int64, torch.bool, torch.complex128]


def ones(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    shapes: Sequence[tuple[int, ...]] = _SHAPES,
) -> list[Tensor]:
    """Return a tensor of ones for each shape."""
    return [torch.ones(shape, dtype=dtype, device=device) for shape in shapes]


def misaligned(tensors: Iterable[Tensor]) -> list[torch.Size]:
    """Return the shapes of the non-empty tensors that are misaligned on their device."""
    return [
        tensor.shape
        for tensor in tensors
        if tensor.numel() and tensor.data_ptr() % alignment_on(tensor.device)
    ]
