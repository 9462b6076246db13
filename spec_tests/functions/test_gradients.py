"""First and second derivatives of the autograd Functions."""

import pytest
import torch

from spec_tests.harness.compare.nested_values import tensors
from spec_tests.harness.compare.numerical_gradients import pass_gradcheck, pass_gradgradcheck
from spec_tests.harness.conformance.clauses import cases
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


#: For each clause about gradients: a function that returns a call of the autograd Function.
GRADIENTS = {
    "functions.scatter.gradient": [_scatter],
    "functions.gather.gradient": [_gather],
    "functions.broadcast.gradient": [_broadcast],
    "functions.reduce-add-coalesced.gradient": [_reduce],
}
#: For each clause about second gradients: a function that returns a call of the Function.
SECOND_GRADIENTS = {
    "functions.scatter.double-backward": [_scatter],
    "functions.gather.double-backward": [_gather],
    "functions.broadcast.double-backward": [_broadcast],
    "functions.reduce-add-coalesced.double-backward": [_reduce],
}


def _function_of_tensors(call, target, inputs):
    return lambda *tensors: call.run(target, {**inputs, "tensors": tensors})


@DTYPES
@cases("make_call", GRADIENTS)
def test_gradient_equals_the_numerical_gradient(target, topology, make_call, dtype):
    call = make_call(dtype)
    inputs = call.inputs(topology)
    assert pass_gradcheck(_function_of_tensors(call, target, inputs), inputs["tensors"])


@DTYPES
@cases("make_call", SECOND_GRADIENTS)
def test_second_gradient_equals_the_numerical_gradient(target, topology, make_call, dtype):
    call = make_call(dtype)
    inputs = call.inputs(topology)
    outputs = [output for _, output in tensors(call.run(target, inputs), "outputs")]
    cotangents = [torch.ones_like(output, requires_grad=True) for output in outputs]
    found = torch.autograd.grad(outputs, inputs["tensors"], cotangents, create_graph=True)
    # gradgradcheck skips gradients that do not require grad.
    assert all(gradient.requires_grad for gradient in found)
    function = _function_of_tensors(call, target, inputs)
    assert pass_gradgradcheck(function, inputs["tensors"])
