"""Arguments with fewer chunks than devices, or with different numbers of chunks.

In this file, ``k`` is the number of devices.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from spec_tests.harness.environment.topology import Topology
from spec_tests.oracle.chunk_sizes import even_chunks


@dataclass(frozen=True)
class FewRows:
    """A tensor of ``rows`` rows that is split into fewer chunks than ``devices``."""

    rows: int
    devices: int

    @property
    def chunk_count(self) -> int:
        """The number of chunks."""
        return len(even_chunks(self.rows, self.devices))

    def tensor(self, topology: Topology) -> torch.Tensor:
        """Return the tensor on the first device."""
        return torch.arange(self.rows).to(topology.device(0))


@dataclass(frozen=True)
class UnequalChunkCounts:
    """Two tensors that are split into different numbers of chunks.

    Args:
        rows: The number of rows of each tensor.
        devices: The number of devices.
    """

    rows: tuple[int, int]
    devices: int

    def tensors(self, topology: Topology) -> list[torch.Tensor]:
        """Return the two tensors on the first device."""
        return [torch.arange(rows).to(topology.device(0)) for rows in self.rows]

    def error_texts(self) -> list[str]:
        """Return the texts that the error must contain: all extents and numbers of chunks."""
        counts = [len(even_chunks(rows, self.devices)) for rows in self.rows]
        return [*(f"size {rows} " for rows in self.rows), *(f"({n} chunks)" for n in counts)]


def few_rows() -> st.SearchStrategy[FewRows]:
    """Draw tensors with fewer chunks than devices. Shrinks to one row for two devices."""
    cases = [FewRows(rows, k) for k in (2, 3, 4) for rows in (1, 2, 3, 5, 6)]
    return st.sampled_from([case for case in cases if case.chunk_count < case.devices])


def unequal_chunk_counts() -> st.SearchStrategy[UnequalChunkCounts]:
    """Draw pairs of tensors from which the reference drops rows. Shrinks to two devices.

    Tensors with one row for each device are excluded: row ``i`` may be meant for device ``i``.
    """
    cases = [
        UnequalChunkCounts((first, second), k)
        for k in (2, 3, 4)
        for first in (1, 2, 4, 8)
        for second in (1, 2, 3, 8)
        if len(even_chunks(first, k)) != len(even_chunks(second, k)) and k not in (first, second)
    ]
    return st.sampled_from(cases)
