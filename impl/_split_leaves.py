"""Chunks of the leaves of nested inputs."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._chunks import SplitTensor, split_and_move
from ._containers import Leaf
from ._copies import (
    PLAIN_CLASSES,
    copy_attributes,
    has_own_operators,
    move_by_own_operators,
    split_into_views,
    tensor_dict_to_device,
)
from ._devices import is_on_cpu
from ._inputs import SplitLeaf
from ._packed_sequences import PackedChunk, split_packed
from ._settings import needs_grad
from ._streams import current_stream_by_device
from .functions import ScatteredChunks


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
    split_tensors: dict[SplitLeaf, SplitTensor] = {}
    packed: dict[SplitLeaf, list[PackedChunk]] = {}
    for leaf, lengths in zip(splits, lengths_of_leaves, strict=True):
        if isinstance(leaf.value, PackedSequence):
            data, data_lengths, packed[leaf] = split_packed(leaf.value, lengths)
            split_tensors[leaf] = SplitTensor(data, data_lengths, 0)
        elif not isinstance(leaf.value, Tensor):  # A TensorDict.
            chunks = zip(leaf.value.split([*lengths], leaf.dim), devices, strict=True)
            pieces[leaf] = [tensor_dict_to_device(*chunk) for chunk in chunks]
        elif has_own_operators(leaf.value):
            pieces[leaf] = _split_by_own_operators(leaf, devices, lengths, even=even)
        else:
            split_tensors[leaf] = _used_rows(leaf, lengths, even=even)
    streams = _streams_for(split_tensors.values(), devices)
    split_and_move(split_tensors.values(), devices, streams)
    for each in split_tensors.values():
        if needs_grad([each.tensor]):
            each.chunks = ScatteredChunks.apply(  # type: ignore[no-untyped-call] # in torch
                [*streams.values()], each.dim, each.chunks, each.tensor
            )
    for leaf, split_tensor in split_tensors.items():
        pieces[leaf] = split_tensor.chunks
        _copy_attributes(split_tensor)
    for leaf, parts in packed.items():
        pairs = zip(parts, pieces[leaf], strict=True)
        pieces[leaf] = [part.with_data(chunk) for part, chunk in pairs]
    return pieces


def _used_rows(leaf: SplitLeaf, lengths: Sequence[int], *, even: bool) -> SplitTensor:
    rows, used = leaf.value, sum(lengths)
    if used != leaf.extent:
        rows = rows.narrow(leaf.dim, 0, used)
    # `split_with_sizes` is faster than `chunk`, but a subclass may support `chunk` only.
    by_chunk = even and type(leaf.value) not in PLAIN_CLASSES
    return SplitTensor(rows, None if by_chunk else lengths, leaf.dim)


def _copy_attributes(split_tensor: SplitTensor) -> None:
    """Copy the attributes of a tensor of a subclass to its chunks of this subclass."""
    kind = type(split_tensor.tensor)
    if kind not in PLAIN_CLASSES:
        for chunk in split_tensor.chunks:
            if type(chunk) is kind:
                copy_attributes(split_tensor.tensor, chunk)


def _streams_for(
    split_tensors: Iterable[SplitTensor], devices: Sequence[torch.device]
) -> dict[torch.device, torch.Stream]:
    """Return the current streams that copies from the CPU and backward need."""
    sources = [
        each.tensor.device
        for each in split_tensors
        if is_on_cpu(each.tensor) or needs_grad([each.tensor])
    ]
    return current_stream_by_device([*devices, *sources]) if sources else {}


def _split_by_own_operators(
    leaf: SplitLeaf, targets: Sequence[torch.device], lengths: Sequence[int], *, even: bool
) -> Sequence[Tensor]:
    """Split a tensor subclass by its own operators, which are differentiable."""
    rest = leaf.extent - sum(lengths)
    # If rows are dropped, each chunk has one row (see `split_lengths`).
    count = leaf.extent if rest else len(lengths)
    chunks = split_into_views(leaf.value, count, None if even else [*lengths, rest], leaf.dim)
    pairs = zip(chunks, targets, strict=False)
    return [move_by_own_operators(chunk, target) for chunk, target in pairs]
