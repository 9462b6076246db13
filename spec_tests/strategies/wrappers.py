"""Tensors whose class implements the operations itself, and lacks some: nested and masked ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.masked import masked_tensor

from spec_tests.harness.environment.topology import Topology

#: Filters for warnings of PyTorch, which are no target's.
WARNINGS = (
    "ignore:The PyTorch API of (nested tensors|MaskedTensors) is in prototype stage",
    "ignore:It is not recommended to create a MaskedTensor with a tensor that requires_grad",
    r"ignore:\w+ is not implemented in __torch_dispatch__ for MaskedTensor",
)


@dataclass(frozen=True)
class Jagged:
    """A jagged nested tensor of sequences of vectors, which count up from one.

    Args:
        lengths: Of each sequence; one or more.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The device, as a position in the topology; None for the CPU.
    """

    lengths: tuple[int, ...]
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Any:
        """The tensor, of two columns."""
        values = torch.arange(1.0, 2 * sum(self.lengths) + 1).reshape(-1, 2)
        return torch.nested.nested_tensor(
            list(torch.split_with_sizes(values, list(self.lengths))),
            layout=torch.jagged,
            device=topology.device(self.slot),
            requires_grad=self.requires_grad,
        )

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Masked:
    """A MaskedTensor of two columns, whose elements count up from one; every third is hidden.

    Args:
        rows: Their number; one or more.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The device, as a position in the topology; None for the CPU.
    """

    rows: int
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Any:
        """The tensor."""
        data = torch.arange(1.0, 2 * self.rows + 1).reshape(-1, 2)
        device = topology.device(self.slot)
        return masked_tensor(
            data.to(device), (data % 3 != 0).to(device), requires_grad=self.requires_grad
        )

    def __len__(self) -> int:
        return self.rows


def entries(tensor: Any) -> list[object]:
    """What stands at each index of dimension 0, as lists; None for an element that is hidden."""
    if tensor.is_nested:
        return [entry.tolist() for entry in tensor.detach().cpu().unbind()]
    data, mask = (part.detach().tolist() for part in (tensor.get_data(), tensor.get_mask()))
    return [
        [element if is_seen else None for element, is_seen in zip(*row, strict=True)]
        for row in zip(data, mask, strict=True)
    ]


def sum_of_squares(chunk: Any) -> Tensor:
    """The sum of the squares of all elements that are not hidden, differentiably."""
    squares = chunk * chunk
    if chunk.is_nested:
        return torch.as_tensor(squares.values().sum())
    return torch.as_tensor(squares.sum().get_data())


class SequenceSum(nn.Module):
    """A linear layer of each vector, then the sum of each sequence; hidden elements are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Any) -> Tensor:
        """One row an entry."""
        rows = (
            self.layer(x).to_padded_tensor(0.0).sum(1)
            if x.is_nested
            else self.layer(x.to_tensor(0.0))
        )
        return torch.as_tensor(rows)


def jagged_specs(
    *, grads: Sequence[bool] = (False, True), slots: Sequence[int | None] = (0, None)
) -> st.SearchStrategy[Jagged]:
    """Nested tensors, empty sequences included. Shrinks to one sequence of one vector."""
    lengths = st.lists(st.sampled_from([1, 2, 3, 0]), min_size=1, max_size=7).map(tuple)
    return st.builds(Jagged, lengths, st.sampled_from(grads), st.sampled_from(slots))


def masked_specs(
    *, grads: Sequence[bool] = (False, True), slots: Sequence[int | None] = (0,)
) -> st.SearchStrategy[Masked]:
    """Masked tensors, by default on the accelerator. Shrinks to one row."""
    rows = st.integers(1, 7)
    return st.builds(Masked, rows, st.sampled_from(grads), st.sampled_from(slots))
