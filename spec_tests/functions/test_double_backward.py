"""Every Function has the right gradient and is differentiable twice."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.traverse import tensors
from spec_tests.strategies.calls import ApplyCall, DeviceAt, DistinctDevices
from spec_tests.strategies.tensors import TensorSpec

#: Numerical derivatives need double precision.
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)


def _leaf(shape, dtype, slot=0):
    return TensorSpec(shape, dtype, requires_grad=True, slot=slot)


def _scatter(dtype):
    return ApplyCall("Scatter", ([DeviceAt(0), DeviceAt(1)], None, 0), (_leaf((3, 2), dtype),))


def _gather(dtype):
    chunks = tuple(_leaf((rows, 2), dtype, slot) for slot, rows in enumerate([2, 1]))
    return ApplyCall("Gather", (DeviceAt(0), 0), chunks)


def _broadcast(dtype):
    tensors = (_leaf((2, 2), dtype), _leaf((), dtype), _leaf((2,), dtype))
    return ApplyCall("Broadcast", (DistinctDevices((0, 1, 2)),), tensors)


def _reduce(dtype):
    rows = tuple(_leaf(shape, dtype, slot) for slot in (0, 1) for shape in [(2, 2), (2,)])
    return ApplyCall("ReduceAddCoalesced", (DeviceAt(0), 2), rows)


#: A Function each, and the clause of its case.
GRADIENTS = {
    "functions.scatter.gradient": _scatter,
    "functions.gather.gradient": _gather,
    "functions.broadcast.gradient": _broadcast,
    "functions.reduce-add-coalesced.gradient": _reduce,
}
SECOND_GRADIENTS = {
    "functions.scatter.double-backward": _scatter,
    "functions.gather.double-backward": _gather,
    "functions.broadcast.double-backward": _broadcast,
    "functions.reduce-add-coalesced.double-backward": _reduce,
}


def _each(calls):
    """One case a Function, each with its own clause."""
    cases = [
        pytest.param(make, marks=clause(name), id=name.split(".")[1])
        for name, make in calls.items()
    ]
    return pytest.mark.parametrize("make", cases)


def _as_function(call, target, inputs):
    return lambda *tensors: call.run(target, {**inputs, "tensors": tensors})


@DTYPES
@_each(GRADIENTS)
def test_the_gradient_is_the_numerical_one(target, topology, make, dtype):
    call = make(dtype)
    inputs = call.inputs(topology)
    assert gradcheck(_as_function(call, target, inputs), inputs["tensors"])


@DTYPES
@_each(SECOND_GRADIENTS)
def test_the_second_gradient_is_the_numerical_one(target, topology, make, dtype):
    call = make(dtype)
    inputs = call.inputs(topology)
    assert gradgradcheck(_as_function(call, target, inputs), inputs["tensors"])


@DTYPES
@_each(SECOND_GRADIENTS)
def test_every_gradient_has_a_gradient_itself(target, topology, make, dtype):
    # The numerical check passes over gradients that do not require one.
    call = make(dtype)
    inputs = call.inputs(topology)
    outputs = [output for _, output in tensors(call.run(target, inputs), "outputs")]
    slopes = [torch.ones_like(output, requires_grad=True) for output in outputs]
    found = torch.autograd.grad(outputs, inputs["tensors"], slopes, create_graph=True)
    assert all(slope.requires_grad for slope in found)
