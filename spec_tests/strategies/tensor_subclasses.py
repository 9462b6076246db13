"""Tensor subclasses that lack some operations: nested tensors and MaskedTensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.masked import masked_tensor

from spec_tests.machine.capabilities import empty_sizes
from spec_tests.machine.devices import Topology

#: Filters for PyTorch's warnings about these subclasses. No target causes these warnings.
WARNINGS = (
    "ignore:The PyTorch API of (nested tensors|MaskedTensors) is in prototype stage",
    "ignore:It is not recommended to create a MaskedTensor with a tensor that requires_grad",
    r"ignore:\w+ is not implemented in __torch_dispatch__ for MaskedTensor",
)


@dataclass(frozen=True)
class Jagged:
    """A description of a jagged nested tensor with elements 1, 2, 3, ... in two columns.

    Args:
        lengths: The number of rows of each sequence; at least one sequence.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
    """

    lengths: tuple[int, ...]
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Any:
        """Return a new nested tensor."""
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
    """A description of a MaskedTensor with elements 1, 2, ... in two columns.

    Multiples of 3 are masked.

    Args:
        rows: The number of rows, at least one.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
    """

    rows: int
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Any:
        """Return a new MaskedTensor."""
        data = torch.arange(1.0, 2 * self.rows + 1).reshape(-1, 2)
        device = topology.device(self.slot)
        return masked_tensor(
            data.to(device), (data % 3 != 0).to(device), requires_grad=self.requires_grad
        )

    def __len__(self) -> int:
        return self.rows


def entries(tensor: Any) -> list[object]:
    """Return ``tensor`` as nested lists, with None for each masked element."""
    if tensor.is_nested:
        return [entry.tolist() for entry in tensor.detach().cpu().unbind()]
    data, mask = (each.detach().tolist() for each in (tensor.get_data(), tensor.get_mask()))
    return [
        [element if is_valid else None for element, is_valid in zip(*row, strict=True)]
        for row in zip(data, mask, strict=True)
    ]


def sum_of_squares(chunk: Any) -> Tensor:
    """Return the sum of the squares of all unmasked elements. The sum is differentiable."""
    squares = chunk * chunk
    if chunk.is_nested:
        return torch.as_tensor(squares.values().sum())
    return torch.as_tensor(squares.sum().get_data())


def jagged_specs(
    *, grads: Sequence[bool] = (False, True), slots: Sequence[int | None] = (0, None)
) -> st.SearchStrategy[Jagged]:
    """Draw descriptions of nested tensors. Shrinks to one sequence of one vector.

    Sequences may be empty.
    """
    # Deferred, because the result of `empty_sizes` depends on the devices, and the suite tries the
    # devices after it has imported its tests.
    sizes = st.deferred(lambda: st.sampled_from([1, 2, 3, *empty_sizes()]))
    lengths = st.lists(sizes, min_size=1, max_size=7).map(tuple)
    return st.builds(Jagged, lengths, st.sampled_from(grads), st.sampled_from(slots))


def masked_specs(
    *, grads: Sequence[bool] = (False, True), slots: Sequence[int | None] = (0,)
) -> st.SearchStrategy[Masked]:
    """Draw descriptions of MaskedTensors. Shrinks to one row."""
    rows = st.integers(1, 7)
    return st.builds(Masked, rows, st.sampled_from(grads), st.sampled_from(slots))


class Named(torch.Tensor):
    """A subclass of Tensor whose tensors have a name."""

    axis: Any


class WithDefault(Named):
    """A subclass whose operators set the attribute ``axis`` of results that lack it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``."""
        found = super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call] # in torch
        if isinstance(found, cls) and not hasattr(found, "axis"):
            found.axis = None
        return found
