"""scatter_gather: gather is the inverse of scatter."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.nested_values import tensors
from spec_tests.checks.numerical_gradients import check_gradients, check_second_gradients
from spec_tests.checks.outcome import cotangent
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine import capabilities, profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies import scatter_gather
from spec_tests.strategies.calls import build
from spec_tests.strategies.containers import EMPTY, NewObject
from spec_tests.strategies.tensors import TensorSpec, device_slots

#: The kinds of containers that scatter and gather preserve.
PRESERVED = ("tuple", "list", "dict", "Pair", "OrderedDict", "Typed", "DictSubclass")


@st.composite
def trips(draw):
    """Draw inputs on the first device, devices, and a dimension. Shrinks to one tensor."""
    dim = draw(st.sampled_from(scatter_gather.DIMS))
    extent = draw(st.sampled_from(scatter_gather.EXTENTS))
    leaf = scatter_gather.tensors(extent, dim, slots=(0,))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    inputs = draw(scatter_gather.nested_values(leaf | others, PRESERVED))
    return inputs, draw(device_slots()), dim


def scatter_and_gather(target, topology, trip):
    """Return the inputs and the gathered values."""
    inputs, slots, dim = build(trip[0], topology), *trip[1:]
    replicas = target.scatter_gather.scatter(inputs, topology.take(slots), dim)
    return inputs, target.scatter_gather.gather(replicas, topology.device(0), dim)


def with_grad(value):
    return [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]


@clause("scatter_gather.gather-undoes-scatter.values")
@given(trip=trips())
def test_gather_restores_scattered_values(target, topology, trip):
    inputs, gathered = scatter_and_gather(target, topology, trip)
    found, expected = (snapshot(each, {}, strides=False) for each in (gathered, inputs))
    checks.same(found, expected, trip)


@clause("scatter_gather.gather-undoes-scatter.gradients")
@given(trip=trips())
@example(trip=(TensorSpec((4, 2), requires_grad=True), (0, 1), 0))
def test_scatter_and_gather_pass_gradients_on_unchanged(target, topology, trip):
    leaves, results = map(with_grad, scatter_and_gather(target, topology, trip))
    gradients = [*map(cotangent, results)]
    found = torch.autograd.grad(results, leaves, gradients) if results else ()
    found, expected = (snapshot(each, {}, strides=False) for each in ([*found], gradients))
    checks.same(found, expected, trip)


@clause("scatter_gather.scatter.differentiable-twice")
@profiles.divide_examples(3)
@given(rows=st.integers(1, 4), slots=device_slots(), source=st.sampled_from([0, 1]))
def test_scatter_is_twice_differentiable(target, topology, rows, slots, source):
    capabilities.require("float64")
    device = topology.device(source)
    tensor = torch.rand(rows, 2, dtype=torch.float64).to(device).requires_grad_()

    def chunks(x):
        found = target.scatter_gather.scatter([x], topology.take(slots))
        return tuple(chunk.to(device) for [chunk] in found)

    check_gradients(chunks, [tensor])
    check_second_gradients(chunks, [tensor])


@clause("scatter_gather.gather.differentiable-twice")
@profiles.divide_examples(3)
@given(rows=st.integers(1, 4), slots=device_slots(), source=st.sampled_from([0, 1]))
def test_gather_after_scatter_is_twice_differentiable(target, topology, rows, slots, source):
    capabilities.require("float64")
    tensor = torch.rand(rows, 2, dtype=torch.float64).to(topology.device(source)).requires_grad_()

    def trip(x):
        replicas = target.scatter_gather.scatter([x], topology.take(slots))
        return target.scatter_gather.gather(replicas, topology.device(1))[0]

    check_gradients(trip, [tensor])
    check_second_gradients(trip, [tensor])
