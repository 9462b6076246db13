"""The lengths of the chunks of one tensor, and of all leaves of nested inputs."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from ._arguments import argument
from ._containers import format_path
from ._inputs import SplitLeaf

#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def chunk_lengths(
    extent: int, count: int, chunk_sizes: Sequence[float] | None = None
) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``.

    ``chunk_sizes`` either sum to ``extent``, or are proportions: each length is rounded up until
    no rows are left. By default every length but the last is ``ceil(extent / count)``. The last
    devices have no length if no rows are left for them. A device with size 0 before them has the
    length 0. If ``extent`` is 0, there are ``count`` lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if chunk_sizes is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _proportional_lengths(extent, list(chunk_sizes))


def check_chunk_sizes(chunk_sizes: Sequence[float], count: int | None) -> None:
    """Raise ValueError unless there are ``count`` finite numbers >= 0, and one is > 0.

    If ``count`` is None, any number of sizes is accepted.
    """
    with argument("chunk_sizes"):
        if len(chunk_sizes) != count and count is not None:
            raise ValueError(f"{len(chunk_sizes)} chunk sizes for {count} devices")
        if not all(0 <= size < math.inf for size in chunk_sizes):
            raise ValueError(f"negative or infinite chunk size in {list(chunk_sizes)}")
        if not any(chunk_sizes):
            raise ValueError(f"every chunk size is 0 in {list(chunk_sizes)}")


def _proportional_lengths(extent: int, chunk_sizes: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, size in enumerate(chunk_sizes):
        share = rows * size / sum(chunk_sizes[index:])
        lengths.append(min(rows, math.ceil(share - _ROUNDING)))
        rows -= lengths[-1]
        if rows == 0:
            break
    return lengths


def split_lengths(
    splits: Sequence[SplitLeaf], count: int, chunk_sizes: Sequence[float] | None
) -> list[list[int]]:
    """Return the chunk lengths of each leaf. All leaves have equally many chunks.

    A tensor with one row per device, beside a batch of another size, has chunks of one row.
    transformers' Trainer passes a tensor of this kind with every batch. If the batch has fewer
    chunks than there are devices, the last rows of the tensor are dropped.
    """
    extents = {split.extent for split in splits}
    if len(extents) == 1:
        return [chunk_lengths(extents.pop(), count, chunk_sizes)] * len(splits)
    batch = [split for split in splits if not has_one_row_per_device(split, count)]
    lengths = {
        extent: chunk_lengths(extent, count, chunk_sizes)
        for extent in {split.extent for split in batch}
    }
    for split in batch:
        if len(lengths[split.extent]) != len(lengths[batch[0].extent]):
            raise ValueError(_describe_mismatch(batch[0], split, count, lengths))
    single_rows = [1] * len(lengths[batch[0].extent]) if batch else []
    batch_ids = set(map(id, batch))
    return [lengths[split.extent] if id(split) in batch_ids else single_rows for split in splits]


def has_one_row_per_device(leaf: SplitLeaf, count: int) -> bool:
    """Return whether ``leaf`` is a tensor with as many rows as there are devices."""
    return leaf.extent == count and isinstance(leaf.value, Tensor)


def _describe_mismatch(
    first: SplitLeaf, other: SplitLeaf, count: int, lengths: Mapping[int, list[int]]
) -> str:
    described = [
        f"{format_path(split.path)} has size {split.extent} along dim {split.dim} "
        f"({len(lengths[split.extent])} chunks)"
        for split in (first, other)
    ]
    return f"cannot split over {count} devices together: {described[0]}, {described[1]}"
