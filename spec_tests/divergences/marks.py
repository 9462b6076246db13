"""Arguments with markers on some of their parts, and what each replica must get of them.

Letters used in this file: ``N`` is the extent at which every tensor of a case is split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.harness.even_chunks import even_chunks
from spec_tests.harness.outcome import cotangent
from spec_tests.harness.portrait import portrait, tensors
from spec_tests.harness.target import Part
from spec_tests.harness.topology import Topology
from spec_tests.strategies import scatter_gather
from spec_tests.strategies.calls import build
from spec_tests.strategies.tensors import TensorSpec, tensor_specs


@dataclass(frozen=True)
class Mark:
    """A marked part: to be split along ``dim``, or whole where that is None."""

    value: object
    dim: int | None = None

    def build(self, topology: Topology) -> Any:
        """The part without its mark."""
        return build(self.value, topology)

    def __repr__(self) -> str:
        dim = "" if self.dim is None else f", {self.dim}"
        return f"{'Whole' if self.dim is None else 'SplitAlong'}({self.value!r}{dim})"


@dataclass(frozen=True)
class Marked:
    """Arguments whose tensors have extent ``N`` where they are split.

    Args:
        arguments: Lists, marks, tensors and constants.
        extent: ``N``.
        slots: Where to.
    """

    arguments: list[object]
    extent: int
    slots: tuple[int, ...]

    @property
    def replicas(self) -> range:
        """The numbers of the replicas."""
        return range(len(even_chunks(self.extent, len(self.slots))))

    def marked(self, inputs: Any, package: Part) -> Any:
        """The arguments that were built as ``inputs``, marked by the classes of ``package``."""
        leaves = iter(tensors(inputs, ""))
        return _mapped(self.arguments, 0, lambda _: next(leaves)[1], package)

    def share(self, inputs: Any, topology: Topology, replica: int) -> Any:
        """What ``replica`` must get of the arguments that were built as ``inputs``."""
        leaves = iter(tensors(inputs, ""))
        device = topology.device(self.slots[replica])
        rows = even_chunks(self.extent, len(self.slots))

        def part(dim: int | None) -> Tensor:
            _, tensor = next(leaves)
            cut = dim is not None and tensor.dim() > 0
            start = sum(rows[:replica])
            chunk = tensor.narrow(dim or 0, start, rows[replica]) if cut else tensor
            return chunk.to(device)

        return _mapped(self.arguments, 0, part, None)


def _mapped(
    value: Any, dim: int | None, leaf: Callable[[int | None], object], package: Part | None
) -> Any:
    if isinstance(value, TensorSpec):
        return leaf(dim)
    if isinstance(value, list):
        return [_mapped(member, dim, leaf, package) for member in value]
    if not isinstance(value, Mark):
        return value
    inside = _mapped(value.value, value.dim, leaf, package)
    if package is None:
        return inside
    return package.Whole(inside) if value.dim is None else package.SplitAlong(inside, value.dim)


def slopes(value: object, inputs: object) -> Any:
    """The gradients that arrive at ``inputs`` from all of ``value``."""
    outputs = [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]
    leaves = [tensor for _, tensor in tensors(inputs, "") if tensor.requires_grad]
    if not outputs:
        return None
    fed = [cotangent(output) for output in outputs]
    return portrait(list(torch.autograd.grad(outputs, leaves, fed)), {}, strides=False)


@st.composite
def marked_arguments(draw: st.DrawFn) -> Marked:
    """Marks anywhere, one inside the other too. Shrinks to one tensor without a mark."""
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
    return Marked([*parts, draw(along[0])], extent, slots)
