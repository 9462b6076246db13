"""Round trips: gather after scatter must return the inputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors
from spec_tests.strategies import scatter_gather
from spec_tests.strategies.calls import build
from spec_tests.strategies.containers import EMPTY, NewObject

#: The kinds of containers that scatter and gather preserve.
PRESERVED = ("tuple", "list", "dict", "Pair", "OrderedDict", "Typed", "DictSubclass")


@dataclass(frozen=True)
class RoundTrip:
    """The call ``gather(scatter(inputs, devices, dim), devices[0], dim)``.

    Args:
        inputs: A description of the inputs, all on the first device.
        slots: The numbers of the devices in the topology.
        dim: The dimension that is split.
    """

    inputs: object
    slots: tuple[int, ...]
    dim: int

    def run(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """Return the inputs and the gathered values."""
        inputs = build(self.inputs, topology)
        replicas = target.scatter_gather.scatter(inputs, topology.take(self.slots), self.dim)
        return inputs, target.scatter_gather.gather(replicas, topology.device(0), self.dim)

    def values(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """Return snapshots, without strides, of the inputs and of the gathered values."""
        inputs, gathered = self.run(target, topology)
        return snapshot(inputs, {}, strides=False), snapshot(gathered, {}, strides=False)

    def gradients(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """Return the output gradients and the input gradients of backward, which must be equal."""
        inputs, gathered = self.run(target, topology)
        results, leaves = list(_tensors_with_grad(gathered)), list(_tensors_with_grad(inputs))
        gradients = [cotangent(result) for result in results]
        input_gradients = torch.autograd.grad(results, leaves, gradients) if results else ()
        return snapshot(gradients, {}, strides=False), snapshot(
            list(input_gradients), {}, strides=False
        )


def _tensors_with_grad(value: object) -> Iterator[Tensor]:
    return (tensor for _, tensor in tensors(value, "") if tensor.requires_grad)


@st.composite
def round_trips(draw: st.DrawFn) -> RoundTrip:
    """Draw round trips of nested containers. Shrinks to one tensor of four rows."""
    dim = draw(st.sampled_from(scatter_gather.DIMS))
    extent = draw(st.sampled_from(scatter_gather.EXTENTS))
    leaf = scatter_gather.tensors(extent, dim, slots=(0,))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    inputs = draw(scatter_gather.nested_values(leaf | others, PRESERVED))
    slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple))
    return RoundTrip(inputs, slots, dim)
