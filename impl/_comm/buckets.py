"""Groups of tensors that travel together, so that many small ones cost one transfer."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor

from .._compat import sparse_parts

__all__ = [
    "DEFAULT_BUFFER_SIZE",
    "REPLICA_BUFFER_SIZE",
    "plan_buckets",
    "sizes_in_bytes",
    "sorted_by_index",
    "unpack",
]

#: Bytes that travel together unless the caller says otherwise.
DEFAULT_BUFFER_SIZE = 10 * 1024 * 1024

#: The same for replicas. Smaller, because the gradients of a bucket are held until the last one
#: has come: at 10 MiB the peak of a backward can be 1.4 times that at 2 MiB.
REPLICA_BUFFER_SIZE = 2 * 1024 * 1024


def plan_buckets(
    tensors: Sequence[Tensor], buffer_size: int, *, by_grad: bool = False
) -> list[list[int]]:
    """Group the indices of ``tensors`` by what must be alike to travel together, in order.

    Args:
        tensors: Dense or sparse COO.
        buffer_size: Bytes per bucket. A tensor that would exceed them opens the next bucket, so
            only a tensor that is larger by itself makes a larger bucket.
        by_grad: Whether to part those that require grad from those that do not.

    Returns:
        Disjoint lists of indices, ascending, that cover ``tensors``. Those of one list are
        alike in dtype, layout and device.
    """
    closed: list[list[int]] = []
    filling: dict[tuple[object, ...], list[int]] = {}
    filled: dict[tuple[object, ...], int] = {}
    for index, (tensor, size) in enumerate(zip(tensors, sizes_in_bytes(tensors), strict=True)):
        kind = tensor.dtype, tensor.layout, tensor.device, by_grad and tensor.requires_grad
        bucket = filling.setdefault(kind, [])
        total = filled.get(kind, 0) + size
        # Too much, and `size` is not all of it: there is something to close.
        if size < total > buffer_size:
            closed.append(bucket)
            bucket = filling[kind] = []
            total = size
        bucket.append(index)
        filled[kind] = total
    return closed + list(filling.values())


def sizes_in_bytes(tensors: Iterable[Tensor]) -> list[int]:
    """Give the bytes of the elements of each tensor, with their indices if it is sparse."""
    return [
        sum(part.nbytes for part in sparse_parts(tensor)) if tensor.is_sparse else tensor.nbytes
        for tensor in tensors
    ]


def sorted_by_index(
    rows: Iterable[Sequence[Tensor]], indices: Sequence[int]
) -> list[list[Tensor]]:
    """Sort the members of each row, which came in the order of ``indices``, by index."""
    order = sorted(range(len(indices)), key=indices.__getitem__)
    if order == list(range(len(indices))):
        return [list(row) for row in rows]
    pick = itemgetter(*order)
    return [list(pick(row)) for row in rows]


def unpack(flat: Tensor, shapes: Iterable[torch.Size]) -> list[Tensor]:
    """Cut ``flat`` into row-major pieces of ``shapes``, in order.

    A piece shares the memory of ``flat``, but its version counter with no other piece: an
    in-place change of one must not look like a change of its neighbours
    (pytorch/pytorch#13594). An empty tensor gets memory of its own. Neighbours of one shape are
    cut off at once, which is several times quicker.
    """
    runs = [(shape, len(list(run))) for shape, run in groupby(shapes)]
    stretches = torch.split(flat, [shape.numel() * count for shape, count in runs])
    pieces: list[Tensor] = []
    for stretch, (shape, count) in zip(stretches, runs, strict=True):
        pieces += _cut(stretch, shape, count)
    return pieces


def _cut(stretch: Tensor, shape: torch.Size, count: int) -> Sequence[Tensor]:
    if shape.numel() == 0:
        return [stretch.new_empty(shape) for _ in range(count)]
    if not shape:
        return _scalars(stretch)
    first, *others = shape
    return torch.unsafe_split(stretch.view(count * first, *others), first)


def _scalars(stretch: Tensor) -> Sequence[Tensor]:
    if torch.is_grad_enabled() and stretch.requires_grad:
        return [piece.view(()) for piece in torch.unsafe_split(stretch, 1)]
    # Several times quicker, and no views; `.data` gives each its own version counter.
    return [piece.data for piece in stretch.unbind()]
