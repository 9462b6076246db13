"""Arguments marked with ``Whole(value)`` or ``SplitAlong(value, dim)``, and expected results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import impl
from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies import scatter_gather
from spec_tests.strategies.calls import build
from spec_tests.strategies.tensors import TensorSpec, tensor_specs


@dataclass(frozen=True)
class Mark:
    """A marked value: ``SplitAlong(value, dim)``, or ``Whole(value)`` if ``dim`` is None."""

    value: object
    dim: int | None = None

    def build(self, topology: Topology) -> Any:
        """Return the value without the mark."""
        return build(self.value, topology)

    def __repr__(self) -> str:
        dim = "" if self.dim is None else f", {self.dim}"
        return f"{'Whole' if self.dim is None else 'SplitAlong'}({self.value!r}{dim})"


@dataclass(frozen=True)
class MarkedArguments:
    """Arguments whose tensors all have the same extent along their split dimension.

    Args:
        arguments: Lists, marks, tensors and constants.
        extent: The extent along the split dimension.
        slots: The numbers of the devices in the topology.
    """

    arguments: list[object]
    extent: int
    slots: tuple[int, ...]

    @property
    def replicas(self) -> range:
        """The numbers of the replicas."""
        return range(len(even_chunks(self.extent, len(self.slots))))

    def marked(self, inputs: Any) -> Any:
        """Return the arguments with the tensors of ``inputs`` and impl's markers."""
        leaves = iter(tensors(inputs, ""))
        return _map_tensors(self.arguments, 0, lambda _: next(leaves)[1], marked=True)


def _map_tensors(
    value: Any, dim: int | None, make_tensor: Callable[[int | None], object], *, marked: bool
) -> Any:
    """Return ``value`` with each tensor replaced by ``make_tensor(dim)``.

    Args:
        value: Nested lists, marks, tensors and constants.
        dim: The dimension along which tensors outside marks are split; None for whole tensors.
        make_tensor: Returns the replacement of the next tensor, given its split dimension.
        marked: Whether a marker of impl replaces each `Mark`; otherwise the marks are dropped.
    """
    if isinstance(value, TensorSpec):
        return make_tensor(dim)
    if isinstance(value, list):
        return [_map_tensors(member, dim, make_tensor, marked=marked) for member in value]
    if not isinstance(value, Mark):
        return value
    inner = _map_tensors(value.value, value.dim, make_tensor, marked=marked)
    if not marked:
        return inner
    return impl.Whole(inner) if value.dim is None else impl.SplitAlong(inner, value.dim)


@st.composite
def marked_arguments(draw: st.DrawFn) -> MarkedArguments:
    """Draw arguments with marks, possibly nested. Shrinks to one tensor without a mark."""
    extent = draw(st.sampled_from([4, 3, 2, 1, 5]))
    anything = st.sampled_from([7, None, "text"]) | tensor_specs()
    along = {dim: scatter_gather.tensors(extent, dim) for dim in (0, 1, -1, 2)}
    split = st.sampled_from([1, -1, 2]).flatmap(
        lambda dim: st.builds(Mark, along[dim] | st.lists(along[dim], max_size=2), st.just(dim))
    )
    whole = st.builds(Mark, anything | st.lists(anything | split, max_size=2))
    both = st.builds(Mark, st.lists(whole | along[1], max_size=2), st.just(1))
    part = along[0] | split | whole | both
    parts = draw(st.lists(part | st.lists(part, max_size=2), max_size=3))
    slots = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    return MarkedArguments([*parts, draw(along[0])], extent, slots)


def expected_arguments(
    case: MarkedArguments, inputs: Any, topology: Topology, replica: int
) -> Any:
    """Return the arguments that replica number ``replica`` gets if ``inputs`` are scattered."""
    leaves = iter(tensors(inputs, ""))
    device = topology.device(case.slots[replica])
    rows = even_chunks(case.extent, len(case.slots))

    def take_chunk(dim: int | None) -> Tensor:
        _, tensor = next(leaves)
        is_split = dim is not None and tensor.dim() > 0
        start = sum(rows[:replica])
        chunk = tensor.narrow(dim or 0, start, rows[replica]) if is_split else tensor
        return chunk.to(device)

    return _map_tensors(case.arguments, 0, take_chunk, marked=False)


def compute_gradients(value: object, inputs: object) -> Any:
    """Return the gradients of all tensors in ``value`` with respect to ``inputs``."""
    outputs = [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]
    leaves = [tensor for _, tensor in tensors(inputs, "") if tensor.requires_grad]
    if not outputs:
        return None
    grad_outputs = [cotangent(output) for output in outputs]
    return snapshot(list(torch.autograd.grad(outputs, leaves, grad_outputs)), {}, strides=False)
