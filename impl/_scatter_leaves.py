"""Chunks of the leaves of nested inputs, and their lengths."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._arguments import argument
from ._containers import Leaf, format_path
from ._copies import (
    PLAIN_CLASSES,
    copy_attributes,
    has_own_operators,
    move_by_own_operators,
    needs_grad,
    tensor_dict_to_device,
    to_device,
)
from ._devices import DeviceLike, as_device_or_current, as_devices, is_cpu, is_on_cpu
from ._inputs import SplitLeaf
from ._move_chunks import SplitTensor, split_and_move
from ._packed_sequences import PackedChunk, split_packed
from ._split_and_cat import split_into_views
from ._streams import current_stream_by_device
from ._torch_private import is_traced
from ._tracing import CONSTANTS, check_not_traced
from .functions import ScatteredChunks

#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def _chunk_lengths(
    extent: int, count: int, chunk_sizes: Sequence[float] | None = None
) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``; ``count`` zeros for no rows.

    ``chunk_sizes`` are proportions: each length is rounded up until no rows are left. By default
    every length but the last is ``ceil(extent / count)``.
    """
    if extent == 0:
        return [0] * count
    if chunk_sizes is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _proportional_lengths(extent, list(chunk_sizes))


def split_simple(
    values: Sequence[Any],
    devices: Sequence[DeviceLike],
    dim: int,
    chunk_sizes: Sequence[float] | None = None,
) -> list[Sequence[Any]] | None:
    """Return the parts of each of ``values`` as ``scatter`` makes them, in less time, or None.

    The values must be constants and plain tensors with equally many rows. Chunks in grad mode,
    and copies from or to the CPU, need more.
    """
    count, has_grad_mode = len(devices), torch.is_grad_enabled()
    if count == 1 and not is_traced():
        moved = move_simple(values, as_device_or_current(devices[0]), dim)
        return None if moved is None else [[each] for each in moved]
    tensors: list[Tensor] = []
    # One loop, because each call of a function takes long after operators of other threads.
    for each in values:
        if type(each) is Tensor:
            if (
                each.layout is not torch.strided
                or not -each.dim() <= dim < each.dim()
                or has_grad_mode
                or (tensors and each.size(dim) != tensors[0].size(dim))
            ):
                return None
            tensors.append(each)
        elif type(each) not in CONSTANTS:
            return None
    if not tensors:
        return [[each] * count for each in values]
    if not devices:
        return None
    check_not_traced()  # A trace would record the chunk sizes as constants.
    targets = as_devices(devices)
    if {*map(is_cpu, targets)} != {*map(is_on_cpu, tensors)}:
        return None
    lengths = _chunk_lengths(tensors[0].size(dim), count, chunk_sizes)
    return [
        [*map(_move, each.split_with_sizes(lengths, dim), targets)]
        if type(each) is Tensor
        else [each] * len(lengths)
        for each in values
    ]


def move_simple(values: Sequence[Any], device: torch.device, dim: int) -> list[Any] | None:
    """Return ``values`` on ``device``, the only one, as :func:`split_simple` does, or None."""
    has_grad_mode, is_for_cpu = torch.is_grad_enabled(), is_cpu(device)
    for each in values:
        if type(each) is Tensor:
            if (
                each.layout is not torch.strided
                or not -each.dim() <= dim < each.dim()
                or (has_grad_mode and each.requires_grad)
                or is_on_cpu(each) != is_for_cpu
            ):
                return None
        elif type(each) not in CONSTANTS:
            return None
    # A tensor on the device becomes a view. This operator keeps the interpreter lock.
    return [
        each
        if type(each) is not Tensor
        else each[...]
        if each.device == device
        else to_device(each, device)
        for each in values
    ]


def _move(chunk: Tensor, device: torch.device) -> Tensor:
    return chunk if chunk.device == device else to_device(chunk, device)


def check_chunk_sizes(chunk_sizes: Sequence[float], count: int | None) -> None:
    """Raise ValueError unless there are ``count`` finite sizes, none negative, and not all 0."""
    with argument("chunk_sizes"):
        if len(chunk_sizes) != count and count is not None:
            raise ValueError(f"{len(chunk_sizes)} chunk sizes for {count} devices")
        if not all(0 <= size < math.inf for size in chunk_sizes):
            raise ValueError(f"negative or infinite chunk size in {list(chunk_sizes)}")
        if not any(chunk_sizes):
            raise ValueError(f"every chunk size is 0 in {list(chunk_sizes)}")


def check_no_zero(chunk_sizes: Sequence[float]) -> None:
    """Raise ValueError if a replica would always compute without rows."""
    with argument("chunk_sizes"):
        if 0 in (sizes := list(chunk_sizes)):
            raise ValueError(
                f"chunk size 0 in {sizes}: the replica on this device would compute without rows. "
                "Leave the device out of device_ids and chunk_sizes: device_ids=[1, 2] and "
                "output_device=0 keep device 0 free"
            )


def _proportional_lengths(extent: int, chunk_sizes: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, size in enumerate(chunk_sizes):
        share = rows * size / sum(chunk_sizes[index:])
        lengths.append(min(rows, max(int(size > 0), math.ceil(share - _ROUNDING))))
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
        return [_chunk_lengths(extents.pop(), count, chunk_sizes)] * len(splits)
    batch = [split for split in splits if not has_one_row_per_device(split, count)]
    lengths = {
        extent: _chunk_lengths(extent, count, chunk_sizes)
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


def scatter_leaves(
    splits: Sequence[SplitLeaf],
    lengths_of_leaves: Sequence[Sequence[int]],
    devices: Sequence[torch.device],
    *,
    even: bool,
) -> dict[Leaf, Sequence[Any]]:
    """Return for each leaf its chunks, one on each of ``devices``.

    Rows beyond the sum of ``lengths_of_leaves`` are dropped. With ``even`` these are the lengths
    of ``Tensor.chunk``.
    """
    pieces: dict[Leaf, Sequence[Any]] = {}
    split_tensors: dict[SplitLeaf, SplitTensor] = {}
    packed: dict[SplitLeaf, list[PackedChunk]] = {}
    for leaf, lengths in zip(splits, lengths_of_leaves, strict=True):
        if isinstance(leaf.value, PackedSequence):
            data, data_lengths, packed[leaf] = split_packed(leaf.value, lengths)
            if has_own_operators(type(data)):
                whole = SplitLeaf(data, 0, len(data), leaf.path)
                pieces[leaf] = _split_by_own_operators(whole, devices, data_lengths, even=False)
            else:
                split_tensors[leaf] = SplitTensor(data, data_lengths, 0)
        elif not isinstance(leaf.value, Tensor):  # A TensorDict.
            chunks = zip(leaf.value.split([*lengths], leaf.dim), devices, strict=True)
            pieces[leaf] = [tensor_dict_to_device(*chunk) for chunk in chunks]
        elif has_own_operators(type(leaf.value)):
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
