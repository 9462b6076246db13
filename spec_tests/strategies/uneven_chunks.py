"""Arguments of which some give fewer chunks than there are devices, or than others give.

Letters used in this file: ``k`` the number of devices, ``N`` the rows of an argument.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from spec_tests.harness.environment.topology import Topology
from spec_tests.oracle.chunk_sizes import even_chunks


@dataclass(frozen=True)
class FewRows:
    """``rows`` rows for ``devices`` devices: fewer chunks than devices."""

    rows: int
    devices: int

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(even_chunks(self.rows, self.devices))

    def tensor(self, topology: Topology) -> torch.Tensor:
        """The rows, on the first device."""
        return torch.arange(self.rows, device=topology.device(0))


@dataclass(frozen=True)
class UnevenRows:
    """Two arguments whose rows give different numbers of chunks for ``devices`` devices."""

    rows: tuple[int, int]
    devices: int

    def tensors(self, topology: Topology) -> list[torch.Tensor]:
        """The two arguments, on the first device."""
        return [torch.arange(rows, device=topology.device(0)) for rows in self.rows]

    def facts(self) -> list[str]:
        """What an error must say of the two: extents and numbers of chunks."""
        counts = [len(even_chunks(rows, self.devices)) for rows in self.rows]
        return [*(f"size {rows} " for rows in self.rows), *(f"({n} chunks)" for n in counts)]


def few_rows() -> st.SearchStrategy[FewRows]:
    """Rows for too many devices. Shrinks to one row for two."""
    cases = [FewRows(rows, k) for k in (2, 3, 4) for rows in (1, 2, 3, 5, 6)]
    return st.sampled_from([case for case in cases if case.chunks < case.devices])


def uneven_rows() -> st.SearchStrategy[UnevenRows]:
    """Arguments of which the reference drops rows. Shrinks to two devices.

    One row a device is no batch, and left out.
    """
    cases = [
        UnevenRows((first, second), k)
        for k in (2, 3, 4)
        for first in (1, 2, 4, 8)
        for second in (1, 2, 3, 8)
        if len(even_chunks(first, k)) != len(even_chunks(second, k)) and k not in (first, second)
    ]
    return st.sampled_from(cases)
