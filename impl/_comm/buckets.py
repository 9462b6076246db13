"""Groups of tensors that travel together, so that many small ones cost one transfer."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor

from .._compat import flatten, sparse_parts, use_unrecorded_views
from .._device import alignment_on

__all__ = [
    "DEFAULT_BUFFER_SIZE",
    "REPLICA_BUFFER_SIZE",
    "pack",
    "plan_buckets",
    "sizes_in_bytes",
    "sorted_by_index",
    "spacing_on",
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
        buffer_size: Bytes per bucket, gaps between tensors not counted. A tensor that would
            exceed them opens the next bucket, so only a tensor that is larger by itself makes a
            larger bucket.
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


def spacing_on(devices: Iterable[torch.device], dtype: torch.dtype) -> int:
    """Return the number of elements at whose multiples tensors begin in a flat tensor.

    They are then aligned on each of ``devices`` as new tensors are. A kernel may take a slower
    path for a tensor that is not, and round otherwise than it does for the module's own tensor;
    products of half-precision matrices run on tensor cores from multiples of 16 bytes only.
    """
    return max(map(alignment_on, devices)) // dtype.itemsize


def pack(tensors: Sequence[Tensor], spacing: int) -> Tensor:
    """Join dense tensors into one flat tensor, in which each begins at a multiple of ``spacing``.

    Gaps hold zeros. A single contiguous tensor is viewed, not copied.
    """
    gaps = [-tensor.numel() % spacing for tensor in tensors]
    gaps[-1] = 0
    if not any(gaps):
        return flatten(tensors)
    zeros = tensors[0].new_zeros(max(gaps))
    fillers = {gap: zeros[:gap] for gap in {*gaps} - {0}}
    parts: list[Tensor] = []
    for tensor, gap in zip(tensors, gaps, strict=True):
        parts.append(tensor)
        if gap:  # Empty parts would make the join twice as slow.
            parts.append(fillers[gap])
    return flatten(parts)


def unpack(flat: Tensor, shapes: Iterable[torch.Size], spacing: int) -> list[Tensor]:
    """Cut ``flat``, which :func:`pack` has joined, into row-major pieces of ``shapes``, in order.

    A piece shares the memory of ``flat``, but its version counter with no other piece: an
    in-place change of one must not look like a change of its neighbours
    (pytorch/pytorch#13594). An empty tensor gets memory of its own. Neighbours of one shape are
    cut off at once, which is several times quicker.
    """
    runs = [(shape, len(list(run))) for shape, run in groupby(shapes)]
    steps = [-(-shape.numel() // spacing) * spacing for shape, _ in runs]
    lengths = [step * count for step, (_, count) in zip(steps, runs, strict=True)]
    lengths[-1] -= steps[-1] - runs[-1][0].numel()  # No gap follows the last tensor.
    pieces: list[Tensor] = []
    with use_unrecorded_views():
        stretches = flat.split_with_sizes(lengths)
        for stretch, (shape, count), step in zip(stretches, runs, steps, strict=True):
            pieces += _cut(stretch, shape, count, step)
    return pieces


def _cut(stretch: Tensor, shape: torch.Size, count: int, step: int) -> Sequence[Tensor]:
    if shape.numel() == 0:
        return [stretch.new_empty(shape) for _ in range(count)]
    return stretch.unfold(0, shape.numel(), step).view(count, *shape).unbind()
