"""Structures that are scattered and gathered again."""

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

#: Containers that come back as they went.
PRESERVED = ("tuple", "list", "dict", "Pair", "OrderedDict", "Typed", "DictSubclass")


@dataclass(frozen=True)
class RoundTrip:
    """``gather(scatter(inputs, devices, dim), devices[0], dim)``; the tensors are there too."""

    inputs: object
    slots: tuple[int, ...]
    dim: int

    def home(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """The inputs and what they come back as."""
        inputs = build(self.inputs, topology)
        replicas = target.scatter_gather.scatter(inputs, topology.take(self.slots), self.dim)
        return inputs, target.scatter_gather.gather(replicas, topology.device(0), self.dim)

    def values(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """The snapshots of the inputs and of what they come back as, memory and strides apart."""
        inputs, found = self.home(target, topology)
        return snapshot(inputs, {}, strides=False), snapshot(found, {}, strides=False)

    def gradients(self, target: Target, topology: Topology) -> tuple[Any, Any]:
        """What is fed into the results, and what arrives at the inputs."""
        inputs, found = self.home(target, topology)
        results, leaves = list(_differentiable(found)), list(_differentiable(inputs))
        fed = [cotangent(result) for result in results]
        arrived = torch.autograd.grad(results, leaves, fed) if results else ()
        return snapshot(fed, {}, strides=False), snapshot(list(arrived), {}, strides=False)


def _differentiable(value: object) -> Iterator[Tensor]:
    return (tensor for _, tensor in tensors(value, "") if tensor.requires_grad)


@st.composite
def round_trips(draw: st.DrawFn) -> RoundTrip:
    """Round trips of any structure. Shrinks to one tensor of few rows."""
    dim = draw(st.sampled_from(scatter_gather.DIMS))
    extent = draw(st.sampled_from(scatter_gather.EXTENTS))
    leaf = scatter_gather.tensors(extent, dim, slots=(0,))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    inputs = draw(scatter_gather.nested(leaf | others, PRESERVED))
    slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple))
    return RoundTrip(inputs, slots, dim)
