"""Descriptions of sparse COO tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.harness.environment.capabilities import offered, require
from spec_tests.harness.environment.topology import Topology


@dataclass(frozen=True)
class SparseSpec:
    """A description of a sparse COO tensor.

    Args:
        shape: The numbers of rows and columns.
        rows: The row of each stored element; element ``i`` is in column ``i % shape[1]``.
        dtype: The dtype.
        coalesced: Whether the tensor is coalesced.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
    """

    shape: tuple[int, int] = (3, 2)
    rows: tuple[int, ...] = (0,)
    dtype: torch.dtype = torch.float32
    coalesced: bool = False
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Tensor:
        """Return a new tensor. Its stored values are 1, 2, 3, ...

        The test is not-run if the devices lack sparse tensors.
        """
        require("sparse")
        columns = [index % self.shape[1] for index in range(len(self.rows))]
        indices = torch.tensor([self.rows, columns], dtype=torch.int64).reshape(2, -1)
        values = torch.arange(1, len(self.rows) + 1).to(self.dtype)
        tensor = torch.sparse_coo_tensor(indices, values, self.shape, check_invariants=True)
        tensor = tensor.coalesce() if self.coalesced else tensor
        return tensor.to(topology.device(self.slot)).requires_grad_(self.requires_grad)

    def __repr__(self) -> str:
        coalesced = ".coalesce()" if self.coalesced else ""
        grad = ".requires_grad_()" if self.requires_grad else ""
        where = "'cpu'" if self.slot is None else f"devices[{self.slot}]"
        columns = [index % self.shape[1] for index in range(len(self.rows))]
        return (
            f"torch.sparse_coo_tensor(torch.tensor([{list(self.rows)}, {columns}]).long(), "
            f"torch.arange(1, {len(self.rows) + 1}), {self.shape}, dtype={self.dtype})"
            f"{coalesced}.to({where}){grad}"
        )


@st.composite
def sparse_specs(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64, torch.int64),
    shape: tuple[int, int] | None = None,
    slots: Sequence[int | None] = (0,),
) -> SparseSpec:
    """Draw descriptions of sparse matrices. Indices may repeat. Shrinks to one stored element."""
    size = st.sampled_from([1, 2, 3])
    shape = draw(st.tuples(size, size)) if shape is None else shape
    count = draw(st.sampled_from([1, 2, 3, 0]))
    rows = draw(st.lists(st.integers(0, shape[0] - 1), min_size=count, max_size=count))
    return SparseSpec(
        shape=shape,
        rows=tuple(rows),
        dtype=draw(st.sampled_from(offered(dtypes))),
        coalesced=draw(st.booleans()),
        slot=draw(st.sampled_from(slots)),
    )
