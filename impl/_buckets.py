"""Groups of tensors that travel together, so that many small ones cost one transfer."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

__all__ = [
    "DEFAULT_BUFFER_SIZE",
    "REPLICA_BUFFER_SIZE",
    "buckets",
    "pack",
    "size_in_bytes",
    "unpack",
]

#: Bytes that travel together unless the caller says otherwise.
DEFAULT_BUFFER_SIZE = 10 * 1024 * 1024

#: The same for replicas. Smaller, because the gradients of a bucket are held until the last one
#: has come: at 10 MiB the peak of a backward is up to 1.5 times that at 4 MiB.
REPLICA_BUFFER_SIZE = 4 * 1024 * 1024


def buckets(
    tensors: Sequence[Tensor], buffer_size: int, *, by_grad: bool = False
) -> list[list[int]]:
    """Group the places of ``tensors`` by what must be alike to travel together, in order.

    Args:
        tensors: Dense or sparse COO.
        buffer_size: Bytes per bucket. A tensor that would exceed them opens the next bucket, so
            only a tensor that is larger by itself makes a larger bucket.
        by_grad: Whether to part those that require grad from those that do not.

    Returns:
        Disjoint lists of places, ascending, that cover ``tensors``. Those of one list are
        alike in dtype, layout and device.
    """
    closed: list[list[int]] = []
    filling: dict[tuple[object, ...], tuple[list[int], int]] = {}
    for place, tensor in enumerate(tensors):
        kind = tensor.dtype, tensor.layout, tensor.device, by_grad and tensor.requires_grad
        size = size_in_bytes(tensor)
        bucket, filled = filling.get(kind, ([], 0))
        if filled > 0 and filled + size > buffer_size:
            closed.append(bucket)
            bucket, filled = [], 0
        bucket.append(place)
        filling[kind] = bucket, filled + size
    return closed + [bucket for bucket, _ in filling.values()]


def size_in_bytes(tensor: Tensor) -> int:
    """Give the bytes of the elements that ``tensor`` holds, with their indices if sparse."""
    if tensor.is_sparse:
        return tensor._indices().nbytes + tensor._values().nbytes
    return tensor.nbytes


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Join dense tensors into one flat one; a single contiguous tensor is viewed, not copied."""
    return torch._C._nn.flatten_dense_tensors(list(tensors))


def unpack(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Cut ``flat`` into row-major pieces with the shapes of ``tensors``, in order.

    A piece shares the memory of ``flat``, but its version counter with no other piece: an
    in-place change of one must not look like a change of its neighbours
    (pytorch/pytorch#13594). An empty tensor gets memory of its own. Neighbours of one shape are
    cut off at once, which is several times quicker.
    """
    runs = [(shape, len(list(run))) for shape, run in groupby(tensor.shape for tensor in tensors)]
    stretches = torch.split(flat, [shape.numel() * count for shape, count in runs])
    pieces: list[Tensor] = []
    for stretch, (shape, count) in zip(stretches, runs, strict=True):
        pieces += _cut(stretch, shape, count)
    return pieces


def _cut(stretch: Tensor, shape: torch.Size, count: int) -> Sequence[Tensor]:
    if shape.numel() == 0:
        return [stretch.new_empty(shape) for _ in range(count)]
    if not shape:
        return [piece.view(()) for piece in torch.unsafe_split(stretch, 1)]
    first, *others = shape
    return torch.unsafe_split(stretch.view(count * first, *others), first)
