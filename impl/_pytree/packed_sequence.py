"""Packed sequences, cut by sequence and joined again.

A packed sequence stores its rows step by step: at step ``t`` one row of each of the
``batch_sizes[t]`` sequences that reach so far, longest sequence first. A chunk of the batch is
therefore no slice of its rows. Here the rows are brought into the order of the chunks (or back),
and the rest is bookkeeping on the CPU.

Letters: ``S`` is the number of sequences, ``T`` the number of steps, ``R`` the number of rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .containers import Branch

__all__ = ["PackedBranch", "PackedChunk", "cat_packed", "sequence_count", "split_packed"]


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A packed sequence but for its rows; ``order`` is None where sequences stand sorted."""

    batch_sizes: Tensor
    order: Tensor | None

    def with_data(self, data: Tensor) -> PackedSequence:
        """Complete the packed sequence with its rows, wherever they live."""
        order = None if self.order is None else self.order.to(data.device)
        return PackedSequence(data, self.batch_sizes, order)


class PackedBranch(Branch):
    """A packed sequence whose one part is its rows."""

    __slots__ = ()

    def build(self, parts: tuple[Tensor, ...]) -> PackedSequence:
        """Build a packed sequence with the template's lengths and order round other rows."""
        chunk = PackedChunk(self.template.batch_sizes, self.template.sorted_indices)
        return chunk.with_data(*parts)


def sequence_count(packed: PackedSequence) -> int:
    """Count the sequences, ``S``."""
    return int(packed.batch_sizes[:1].sum())


def split_packed(
    packed: PackedSequence, lengths: Sequence[int]
) -> tuple[Tensor, list[int], list[PackedChunk]]:
    """Cut a packed sequence into chunks of sequences that follow each other in the original order.

    Args:
        packed: ``S`` sequences, sorted by length or not, on any device.
        lengths: Numbers of sequences that sum to ``S``.

    Returns:
        The rows, chunk after chunk, differentiably (shape, dtype and device of ``packed.data``);
        the number of rows of each chunk; and each chunk but for its rows. Waits for the device
        if ``packed`` has indices there.
    """
    sizes = packed.batch_sizes
    starts = sizes.cumsum(0) - sizes
    rows, chunks = [], []
    for ranks in torch.split_with_sizes(_ranks(packed), list(lengths)):
        longest_first = ranks.sort()
        reached = longest_first.values < sizes[:, None]
        rows.append((starts[:, None] + longest_first.values)[reached])
        chunks.append(_chunk(reached.sum(1), longest_first.indices, packed.sorted_indices))
    return _select_rows(packed.data, torch.cat(rows)), [len(chunk) for chunk in rows], chunks


def cat_packed(chunks: Sequence[PackedSequence], data: Tensor) -> PackedSequence:
    """Join packed sequences into the one that holds their sequences in the original order.

    Args:
        chunks: The parts, in order; their rows are not looked at.
        data: The rows of all of them, one part after the other.

    Returns:
        One packed sequence on the device of ``data``, differentiable with respect to ``data``.
        Sequences of one length keep the order that they have in the parts. It has sorting
        indices unless no part has any and the lengths never rise. Waits for the device if a
        part has indices there.
    """
    reached, rows = _steps_of(chunks)
    by_length = reached.sum(0).sort(descending=True, stable=True).indices
    reached, rows = reached[:, by_length], rows[:, by_length]
    order = _original_indices(chunks)[by_length]
    is_sorted = all(chunk.sorted_indices is None for chunk in chunks) and _is_identity(order)
    joined = PackedChunk(reached.sum(1), None if is_sorted else order)
    return joined.with_data(_select_rows(data, rows[reached]))


def _ranks(packed: PackedSequence) -> Tensor:
    """For each sequence, in the original order, its index in the order of length."""
    if packed.unsorted_indices is not None:
        return packed.unsorted_indices.cpu()
    return _count_up(sequence_count(packed))


def _chunk(batch_sizes: Tensor, order: Tensor, whole_order: Tensor | None) -> PackedChunk:
    return PackedChunk(batch_sizes[batch_sizes > 0], None if whole_order is None else order)


def _steps_of(chunks: Sequence[PackedSequence]) -> tuple[Tensor, Tensor]:
    """Which sequences reach which step, and the row they have there; shapes ``(T, S)``."""
    steps = max(len(chunk.batch_sizes) for chunk in chunks)
    totals = [int(chunk.batch_sizes.sum()) for chunk in chunks]
    reached, rows = [], []
    for chunk, base in zip(chunks, accumulate(totals, initial=0), strict=False):
        sizes = torch.nn.functional.pad(chunk.batch_sizes, (0, steps - len(chunk.batch_sizes)))
        ranks = _count_up(sequence_count(chunk))
        reached.append(ranks < sizes[:, None])
        rows.append(base + (sizes.cumsum(0) - sizes)[:, None] + ranks)
    return torch.cat(reached, 1), torch.cat(rows, 1)


def _original_indices(chunks: Sequence[PackedSequence]) -> Tensor:
    """For each sequence, part after part and longest first in each, its original index."""
    bases = accumulate((sequence_count(chunk) for chunk in chunks), initial=0)
    return torch.cat([base + _order(chunk) for base, chunk in zip(bases, chunks, strict=False)])


def _order(packed: PackedSequence) -> Tensor:
    """For each sequence, longest first, its original index."""
    if packed.sorted_indices is not None:
        return packed.sorted_indices.cpu()
    return _count_up(sequence_count(packed))


def _select_rows(data: Tensor, rows: Tensor) -> Tensor:
    return data if _is_identity(rows) else data.index_select(0, rows.to(data.device))


def _is_identity(indices: Tensor) -> bool:
    return bool((indices == _count_up(len(indices))).all())


def _count_up(stop: int) -> Tensor:
    # Says where: the caller may have set another default device.
    return torch.arange(stop, device="cpu")
