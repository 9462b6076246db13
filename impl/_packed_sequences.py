"""Split and concatenation of packed sequences.

A packed sequence stores its rows step by step: at step ``t`` one row of each of the first
``batch_sizes[t]`` sequences, longest sequence first. The rows of a chunk of sequences are
therefore not a slice of all rows. The functions below permute the rows. They compute the
permutation on the CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._containers import Branch


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A packed sequence without its rows."""

    batch_sizes: Tensor  # The number of sequences that have a row at each step.
    order: Tensor | None  # The indices that sort the sequences by length; None if they are sorted.

    def with_data(self, data: Tensor) -> PackedSequence:
        """Return the packed sequence with the rows ``data``, on the device of ``data``."""
        order = None if self.order is None else self.order.to(data.device)
        return PackedSequence(data, self.batch_sizes, order)


class PackedBranch(Branch):
    """The node of a packed sequence. Its only part is the tensor of the rows."""

    __slots__ = ()

    def build(self, parts: tuple[Tensor, ...]) -> PackedSequence:
        chunk = PackedChunk(self.template.batch_sizes, self.template.sorted_indices)
        return chunk.with_data(*parts)


def count_sequences(packed: PackedSequence) -> int:
    return int(packed.batch_sizes[:1].sum())


def split_packed(
    packed: PackedSequence, counts: Sequence[int]
) -> tuple[Tensor, list[int], list[PackedChunk]]:
    """Split a packed sequence into chunks of sequences that are consecutive in the original order.

    ``counts`` has the number of sequences of each chunk. Return the rows of all chunks, one chunk
    after the other; the number of rows of each chunk; and the chunks without their rows. The rows
    have the shape, dtype and device of ``packed.data``, and gradients flow back to it. The host
    waits for a device on which ``packed`` has indices.
    """
    sizes = packed.batch_sizes
    starts = sizes.cumsum(0) - sizes
    rows, chunks = [], []
    # The position of each sequence among the sequences sorted by length.
    all_positions = _or_identity(packed.unsorted_indices, packed)
    for positions in torch.split_with_sizes(all_positions, list(counts)):
        longest_first = positions.sort()
        reached = longest_first.values < sizes[:, None]
        rows.append((starts[:, None] + longest_first.values)[reached])
        batch_sizes = reached.sum(1)
        order = None if packed.sorted_indices is None else longest_first.indices
        chunks.append(PackedChunk(batch_sizes[batch_sizes > 0], order))
    return _select_rows(packed.data, torch.cat(rows)), [len(chunk) for chunk in rows], chunks


def cat_packed(chunks: Sequence[PackedSequence], data: Tensor) -> PackedSequence:
    """Concatenate packed sequences, in the original order, around the rows ``data`` of all chunks.

    The result has no sorting indices if no chunk has any and the lengths never increase. The host
    waits for a device on which a chunk has indices.
    """
    reached, rows = _rows_by_step(chunks)
    by_length = reached.sum(0).sort(descending=True, stable=True).indices
    reached, rows = reached[:, by_length], rows[:, by_length]
    order = _original_indices(chunks)[by_length]
    is_sorted = all(chunk.sorted_indices is None for chunk in chunks) and _is_identity(order)
    whole = PackedChunk(reached.sum(1), None if is_sorted else order)
    return whole.with_data(_select_rows(data, rows[reached]))


def _or_identity(indices: Tensor | None, packed: PackedSequence) -> Tensor:
    """Return ``indices`` on the CPU; if they are None, the indices of all sequences in order."""
    return _arange(count_sequences(packed)) if indices is None else indices.cpu()


def _rows_by_step(chunks: Sequence[PackedSequence]) -> tuple[Tensor, Tensor]:
    """Return whether each sequence of all chunks has a row at each step, and the row's index."""
    steps = max(len(chunk.batch_sizes) for chunk in chunks)
    totals = [int(chunk.batch_sizes.sum()) for chunk in chunks]
    reached, rows = [], []
    for chunk, base in zip(chunks, accumulate(totals, initial=0), strict=False):
        sizes = torch.nn.functional.pad(chunk.batch_sizes, (0, steps - len(chunk.batch_sizes)))
        positions = _arange(count_sequences(chunk))
        reached.append(positions < sizes[:, None])
        rows.append(base + (sizes.cumsum(0) - sizes)[:, None] + positions)
    return torch.cat(reached, 1), torch.cat(rows, 1)


def _original_indices(chunks: Sequence[PackedSequence]) -> Tensor:
    """Return the original indices of the sequences of all chunks, in the order of their rows."""
    bases = accumulate((count_sequences(chunk) for chunk in chunks), initial=0)
    orders = [_or_identity(chunk.sorted_indices, chunk) for chunk in chunks]
    return torch.cat([base + order for base, order in zip(bases, orders, strict=False)])


def _select_rows(data: Tensor, rows: Tensor) -> Tensor:
    return data if _is_identity(rows) else data.index_select(0, rows.to(data.device))


def _is_identity(indices: Tensor) -> bool:
    return bool((indices == _arange(len(indices))).all())


def _arange(stop: int) -> Tensor:
    # The device is explicit, because the caller may have set another default device.
    return torch.arange(stop, device="cpu")
