"""Calls of the functions of comm."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from spec_tests.strategies.tensors import TensorSpec, tensor_specs
from spec_tests.target import Target
from spec_tests.topology import Topology


@dataclass(frozen=True)
class ScatterCall:
    """One ``comm.scatter`` to the devices at ``slots``."""

    tensor: TensorSpec
    slots: tuple[int, ...]
    chunk_sizes: tuple[int, ...] | None
    dim: int

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The tensor to split."""
        return {"tensor": self.tensor.build(topology), "devices": topology.take(self.slots)}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """The chunks."""
        return target.comm.scatter(
            inputs["tensor"], inputs["devices"], self.chunk_sizes, dim=self.dim
        )

    def __repr__(self) -> str:
        devices = ", ".join(f"devices[{slot}]" for slot in self.slots)
        return f"comm.scatter({self.tensor!r}, [{devices}], {self.chunk_sizes}, dim={self.dim})"


@st.composite
def scatter_calls(draw: st.DrawFn) -> ScatterCall:
    """Calls that the documentation allows. Shrinks to one chunk of one element."""
    # Zero comes last: empty chunks are reachable, but not what a failure shrinks to.
    sizes = st.sampled_from([1, 2, 3, 0])
    chunk_sizes = tuple(draw(st.lists(sizes, min_size=1, max_size=4)))
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    after = draw(st.lists(st.integers(1, 3), max_size=2))
    shape = (*before, sum(chunk_sizes), *after)
    spec = draw(tensor_specs(shape=st.just(shape), slots=(0, 1, None)))
    slots = tuple(draw(st.integers(0, 3)) for _ in chunk_sizes)
    dim = draw(st.sampled_from([len(before), len(before) - len(shape)]))
    return ScatterCall(spec, slots, draw(st.sampled_from([chunk_sizes, None])), dim)
