"""Descriptions of packed sequences."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from spec_tests.machine.capabilities import offered
from spec_tests.machine.devices import Topology
from spec_tests.strategies.tensors import FLOATS, counting


@dataclass(frozen=True)
class Packed:
    """A description of a packed sequence on the first device with elements 0, 1/8, 2/8, ...

    Args:
        lengths: The length of each sequence in the original order; descending if ``is_sorted``.
        width: The number of features in a row.
        is_sorted: Whether the sequences are sorted by length and need no sorting indices.
        dtype: The dtype of the rows.
        requires_grad: Whether the data is a leaf that requires a gradient.
    """

    lengths: tuple[int, ...]
    width: int = 2
    is_sorted: bool = False
    dtype: torch.dtype = torch.float32
    requires_grad: bool = False

    def build(self, topology: Topology) -> PackedSequence:
        """Return a new packed sequence."""
        # Multiples of 1/8 are exact in every dtype. Large inputs would saturate a recurrent layer.
        rows = counting((sum(self.lengths), self.width), self.dtype) / 8
        sequences = list(torch.split(rows, list(self.lengths)))
        packed = pack_sequence(sequences, enforce_sorted=self.is_sorted)
        device = topology.device(0)
        data = packed.data.to(device).requires_grad_(self.requires_grad)
        return PackedSequence(data, packed.batch_sizes, *_indices_on(packed, device))


def unpack(packed: PackedSequence) -> list[Tensor]:
    """Return the sequences in the original order, on the CPU."""
    cpu = torch.device("cpu")
    data = packed.data.detach().cpu()
    return list(
        unpack_sequence(PackedSequence(data, packed.batch_sizes, *_indices_on(packed, cpu)))
    )


def _indices_on(packed: PackedSequence, device: torch.device) -> list[Tensor | None]:
    indices = packed.sorted_indices, packed.unsorted_indices
    return [None if index is None else index.to(device) for index in indices]


def find_errors(packed: PackedSequence) -> list[str]:
    """Return texts about data, batch sizes and sorting indices that are not consistent."""
    sizes, rows, device = packed.batch_sizes.tolist(), len(packed.data), packed.data.device
    errors = []
    if sizes != sorted(sizes, reverse=True) or min(sizes) < 1 or sum(sizes) != rows:
        errors.append(f"the batch sizes of {rows} rows are {sizes}")
    for order in (indices for indices in packed[2:] if indices is not None):
        if sorted(order.tolist()) != list(range(sizes[0])):
            errors.append(f"{order.tolist()} does not sort {sizes[0]} sequences")
        if order.device != device:
            errors.append(f"data on {device} has sorting indices on {order.device}")
    return errors


@st.composite
def packed_specs(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = FLOATS,
    grads: Sequence[bool] = (False, True),
) -> Packed:
    """Draw descriptions of packed sequences, sorted or not. Shrinks to one sequence of one row."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=7))
    is_sorted = draw(st.booleans())
    lengths = sorted(lengths, reverse=True) if is_sorted else lengths
    return Packed(
        tuple(lengths),
        draw(st.integers(1, 3)),
        is_sorted,
        draw(st.sampled_from(offered(dtypes))),
        draw(st.sampled_from(grads)),
    )
