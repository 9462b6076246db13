"""Chunks of the leaves of nested inputs.

``scatter_gather`` flattens the inputs and rebuilds them around the chunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._arguments import argument
from ._comm import (
    PLAIN_CLASSES,
    SplitTensor,
    chunk_lengths,
    copy_attributes,
    is_wrapper,
    needs_grad,
    split_and_move,
    split_into_views,
    tensor_dict_to_device,
    wrapper_to_device,
)
from ._device import current_stream_by_device, is_on_cpu
from ._pytree import Leaf, PackedChunk, SplitLeaf, format_path, split_packed
from .functions import ScatteredChunks


class _leaf_argument(argument):  # noqa: N801 - as its base
    """A block that names a leaf by its path. The path is formatted only for an error."""

    __slots__ = ()

    def _format_names(self) -> str:
        return f"{format_path(self._names)} or target_gpus"


def split_lengths(
    splits: Sequence[SplitLeaf], count: int, weights: Sequence[float] | None
) -> list[list[int]]:
    """Return the chunk lengths of each leaf. All leaves have equally many chunks.

    A tensor with one row per device, beside a batch of another size, has chunks of one row.
    transformers' Trainer passes a tensor of this kind with every batch. If the batch has fewer
    chunks than there are devices, the last rows of the tensor are dropped.
    """
    extents = {split.extent for split in splits}
    if len(extents) == 1:
        return [chunk_lengths(extents.pop(), count, weights)] * len(splits)
    batch = [split for split in splits if not has_one_row_per_device(split, count)]
    lengths = {
        extent: chunk_lengths(extent, count, weights)
        for extent in {split.extent for split in batch}
    }
    for split in batch:
        if len(lengths[split.extent]) != len(lengths[batch[0].extent]):
            raise ValueError(_describe_mismatch(batch[0], split, count, lengths))
    single_rows = [1] * len(lengths[batch[0].extent]) if batch else []
    batch_ids = set(map(id, batch))
    return [lengths[split.extent] if id(split) in batch_ids else single_rows for split in splits]


def has_one_row_per_device(split: SplitLeaf, count: int) -> bool:
    """Return whether ``split`` is a tensor with as many rows as there are devices."""
    return split.extent == count and isinstance(split.value, Tensor)


def _describe_mismatch(
    first: SplitLeaf, other: SplitLeaf, count: int, lengths: Mapping[int, list[int]]
) -> str:
    described = [
        f"{format_path(split.path)} has size {split.extent} along dim {split.dim} "
        f"({len(lengths[split.extent])} chunks)"
        for split in (first, other)
    ]
    return f"cannot split over {count} devices together: {described[0]}, {described[1]}"


def split_leaves(
    splits: Sequence[SplitLeaf],
    lengths_of_leaves: Sequence[Sequence[int]],
    devices: Sequence[torch.device],
    *,
    even: bool,
) -> dict[Leaf, Sequence[Any]]:
    """Return for each leaf its chunks, one on each of ``devices``.

    ``lengths_of_leaves`` has the chunk lengths of each leaf. Rows beyond their sum are dropped.
    ``even`` means that the lengths are those of ``Tensor.chunk``.
    """
    pieces: dict[Leaf, Sequence[Any]] = {}
    rows: dict[SplitLeaf, SplitTensor] = {}
    packed: dict[SplitLeaf, list[PackedChunk]] = {}
    for leaf, lengths in zip(splits, lengths_of_leaves, strict=True):
        error_context = _leaf_argument(leaf.path)
        if isinstance(leaf.value, PackedSequence):
            with error_context:
                data, data_lengths, parts = split_packed(leaf.value, lengths)
            rows[leaf], packed[leaf] = SplitTensor(data, data_lengths, 0, error_context), parts
        elif not isinstance(leaf.value, Tensor):  # A TensorDict.
            with error_context:
                chunks = zip(leaf.value.split([*lengths], leaf.dim), devices, strict=True)
                pieces[leaf] = [tensor_dict_to_device(*chunk) for chunk in chunks]
        elif is_wrapper(leaf.value):
            with error_context:
                pieces[leaf] = _split_wrapper(leaf, devices, lengths, even=even)
        else:
            rows[leaf] = _used_rows(leaf, lengths, error_context, even=even)
    with argument("target_gpus"):
        streams = _streams_for(rows.values(), devices)
    split_and_move(rows.values(), devices, streams)
    for split in rows.values():
        if needs_grad([split.tensor]):
            with split.error_context:
                split.chunks = ScatteredChunks.apply(  # type: ignore[no-untyped-call] # in torch
                    [*streams.values()], split.dim, split.chunks, split.tensor
                )
    for leaf, split in rows.items():
        pieces[leaf] = split.chunks
        _copy_attributes(split)
    for leaf, parts in packed.items():
        pairs = zip(parts, pieces[leaf], strict=True)
        pieces[leaf] = [part.with_data(chunk) for part, chunk in pairs]
    return pieces


def _used_rows(
    leaf: SplitLeaf, lengths: Sequence[int], error_context: argument, *, even: bool
) -> SplitTensor:
    rows, used = leaf.value, sum(lengths)
    if used != leaf.extent:
        with error_context:
            rows = rows.narrow(leaf.dim, 0, used)
    # `split_with_sizes` is faster than `chunk`, but a subclass may support `chunk` only.
    by_chunk = even and type(leaf.value) not in PLAIN_CLASSES
    return SplitTensor(rows, None if by_chunk else lengths, leaf.dim, error_context)


def _copy_attributes(split: SplitTensor) -> None:
    """Copy the attributes of a tensor of a subclass to its chunks of this subclass."""
    kind = type(split.tensor)
    if kind not in PLAIN_CLASSES:
        for chunk in split.chunks:
            if type(chunk) is kind:
                copy_attributes(split.tensor, chunk)


def _streams_for(
    splits: Iterable[SplitTensor], devices: Sequence[torch.device]
) -> dict[torch.device, torch.Stream]:
    """Return the current streams that copies from the CPU and backward need."""
    sources = [
        split.tensor.device
        for split in splits
        if is_on_cpu(split.tensor) or needs_grad([split.tensor])
    ]
    return current_stream_by_device([*devices, *sources]) if sources else {}


def _split_wrapper(
    split: SplitLeaf, targets: Sequence[torch.device], lengths: Sequence[int], *, even: bool
) -> Sequence[Tensor]:
    """Split a tensor subclass by its own operators, which are differentiable."""
    rest = split.extent - sum(lengths)
    # If rows are dropped, each chunk has one row (see `split_lengths`).
    count = split.extent if rest else len(lengths)
    chunks = split_into_views(split.value, count, None if even else [*lengths, rest], split.dim)
    pairs = zip(chunks, targets, strict=False)
    return [wrapper_to_device(chunk, target) for chunk, target in pairs]
