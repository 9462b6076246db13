"""First and second derivatives of the autograd Functions, also in gradient penalties."""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.nested_values import tensors
from spec_tests.checks.numerical_gradients import (
    check_gradients,
    check_second_gradients,
    require_graphs,
)
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import ApplyCall, DeviceAt, DistinctDevices
from spec_tests.strategies.tensors import TensorSpec, counting

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
    check_gradients(_function_of_tensors(call, target, inputs), inputs["tensors"])


@DTYPES
@cases("make_call", SECOND_GRADIENTS)
def test_second_gradient_equals_the_numerical_gradient(target, topology, make_call, dtype):
    call = make_call(dtype)
    inputs = call.inputs(topology)
    outputs = [output for _, output in tensors(call.run(target, inputs), "outputs")]
    cotangents = [torch.ones_like(output, requires_grad=True) for output in outputs]
    found = torch.autograd.grad(outputs, inputs["tensors"], cotangents, create_graph=True)
    require_graphs(found, call)
    function = _function_of_tensors(call, target, inputs)
    check_second_gradients(function, inputs["tensors"])


def _leaves(topology):
    """Return a weight and six rows of integers, for which all float64 sums are exact."""
    specs = [TensorSpec(shape, torch.float64, requires_grad=True) for shape in [(1, 2), (6, 2)]]
    return [spec.build(topology) for spec in specs]


def _scaled_square(weight, rows):
    return (rows * weight).square()


def _on_three_devices(target, topology):
    """Return a function that computes `_scaled_square` with ``target`` on three devices."""
    devices = topology.take(3)

    def model(weight, rows):
        chunks = target.functions.Scatter.apply(devices, None, 0, rows)
        weights = target.functions.Broadcast.apply(devices, weight)
        squares = map(_scaled_square, weights, chunks)
        return target.functions.Gather.apply(devices[0], 0, *squares)

    return model


def _penalty(output, weight, rows):
    """Return the sum of the squared gradients of a loss."""
    gradients = torch.autograd.grad(output.square().sum(), (weight, rows), create_graph=True)
    return sum(gradient.square().sum() for gradient in gradients)


def _returned(model, weight, rows):
    # PyTorch 1.0: the weight got no gradient after the output was out of scope (#16532).
    return _penalty(model(weight, rows), weight, rows)


def _in_line(model, weight, rows):
    # PyTorch 0.2: "Scatter is not differentiable twice" (#2467).
    output = model(weight, rows)
    return _penalty(output, weight, rows) + 0 * output.sum()


@cases(
    "loss", {"functions.penalty.in-a-helper": [_returned], "functions.penalty.in-line": [_in_line]}
)
def test_gradient_of_a_penalty_equals_one_device(target, topology, loss):
    def gradient(model):
        weight, rows = _leaves(topology)
        return torch.autograd.grad(loss(model, weight, rows), weight)[0]

    found, expected = map(gradient, (_on_three_devices(target, topology), _scaled_square))
    checks.same(found, expected, place="penalty")


class _RecordDevice(torch.autograd.Function):
    """The identity function, whose backward records the current device."""

    @staticmethod
    def forward(ctx, tensor, record):
        ctx.record = record
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.record.append(torch.accelerator.current_device_index())
        return gradient, None


@clause("functions.backward-on-own-device")
def test_backward_of_a_chunk_runs_with_its_device_current(target, topology):
    topology.require(distinct=2)
    # PyTorch 0.1: device 0 was current in every replica's backward (#2017).
    rows = counting((4, 2), torch.float32, topology.device(0)).requires_grad_()
    records = [[] for _ in range(4)]
    chunks = target.functions.Scatter.apply(topology.take(4), None, 0, rows)
    outputs = [
        _RecordDevice.apply(chunk, record) for chunk, record in zip(chunks, records, strict=True)
    ]
    target.functions.Gather.apply(topology.device(0), 0, *outputs).sum().backward()
    assert records == [[device.index] for device in topology.take(4)]
