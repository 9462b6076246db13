"""Arguments marked with ``Whole(value)`` or ``SplitAlong(value, dim)``.

torch.nn.parallel has no such markers (divergence SG-5).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from spec_tests.harness.environment.target import Part
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

    def marked(self, inputs: Any, package: Part) -> Any:
        """Return the arguments with the tensors of ``inputs`` and the markers of ``package``."""
        leaves = iter(tensors(inputs, ""))
        return map_tensors(self.arguments, 0, lambda _: next(leaves)[1], package)


def map_tensors(
    value: Any, dim: int | None, make_tensor: Callable[[int | None], object], package: Part | None
) -> Any:
    """Return ``value`` with each tensor replaced by ``make_tensor(dim)``.

    Args:
        value: Nested lists, marks, tensors and constants.
        dim: The dimension along which tensors outside marks are split; None for whole tensors.
        make_tensor: Returns the replacement of the next tensor, given its split dimension.
        package: The package whose classes replace each `Mark`; None to drop the marks.
    """
    if isinstance(value, TensorSpec):
        return make_tensor(dim)
    if isinstance(value, list):
        return [map_tensors(member, dim, make_tensor, package) for member in value]
    if not isinstance(value, Mark):
        return value
    inner = map_tensors(value.value, value.dim, make_tensor, package)
    if package is None:
        return inner
    return package.Whole(inner) if value.dim is None else package.SplitAlong(inner, value.dim)


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
