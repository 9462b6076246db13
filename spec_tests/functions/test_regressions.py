"""Regressions of the autograd Functions in earlier PyTorch releases."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.side_streams import DELAY, require_order
from spec_tests.harness.conformance.clauses import cases, clause
from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.queued_work import queue_work
from spec_tests.strategies.tensors import TensorSpec, counting


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
    "loss",
    {"functions.penalty.in-a-helper": [_returned], "functions.penalty.in-line": [_in_line]},
)
def test_gradient_of_a_penalty_equals_one_device(target, topology, loss):
    def gradient(model):
        weight, rows = _leaves(topology)
        return torch.autograd.grad(loss(model, weight, rows), weight)[0]

    checks.same(gradient(_on_three_devices(target, topology)), gradient(_scaled_square))


@clause("functions.broadcast.gradient-layout")
@pytest.mark.parametrize("layout", ["channels_last", "transposed", "contiguous"])
def test_accumulated_gradient_has_the_strides_of_its_leaf(target, topology, layout):
    # PyTorch 1.5: gradients of channels-last weights came out row-major (#34904).
    weight = TensorSpec((4, 3, 2, 2), layout=layout, requires_grad=True).build(topology)
    copies = target.functions.Broadcast.apply(topology.take(2), weight, weight.detach())
    sum((copy * 2).sum().cpu() for copy in copies[::2]).backward()
    assert weight.grad.stride() == weight.stride()
    assert weight.grad.unique().tolist() == [4.0]


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
    # PyTorch 0.1: device 0 was current in every replica's backward (#2017).
    rows = counting((4, 2), torch.float32, topology.device(0)).requires_grad_()
    records = [[] for _ in range(4)]
    chunks = target.functions.Scatter.apply(topology.take(4), None, 0, rows)
    outputs = [
        _RecordDevice.apply(chunk, record) for chunk, record in zip(chunks, records, strict=True)
    ]
    target.functions.Gather.apply(topology.device(0), 0, *outputs).sum().backward()
    assert records == [[device.index] for device in topology.take(4)]


def _pinned_rows(first):
    rows = torch.arange(first, first + 2**20, dtype=torch.float32)
    return rows.pin_memory() if capabilities.offers("pinned-memory") else rows


@clause("functions.scatter.cpu-input-is-ready")
def test_chunk_with_a_delayed_copy_can_be_read_without_waiting(target, topology):
    capabilities.require("distinct-streams")
    capabilities.require("record-stream")  # without it, impl uses no side stream
    require_order()
    rows = _pinned_rows(0)
    if target.functions.offers("_get_stream"):
        for device in dict.fromkeys(topology.devices):
            with target.functions.private("_get_stream")(device):
                queue_work(device, DELAY)
    chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
    assert torch.cat([chunk.cpu() for chunk in chunks]).equal(rows)


@clause("functions.scatter.cpu-input-is-ready")
def test_chunk_can_be_freed_before_queued_work_reads_it(target, topology):
    require_order()
    totals, expected = [], []
    for first in range(4):
        rows = _pinned_rows(first)
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        for device in dict.fromkeys(topology.devices):
            queue_work(device, DELAY)
        # The sums run after the queued work. Without record_stream, the chunks of the next
        # iteration would overwrite the freed memory before the sums read it.
        totals.append([chunk.double().sum() for chunk in chunks])
        expected.append([chunk.double().sum() for chunk in rows.chunk(3)])
        del chunks
    assert [[total.item() for total in row] for row in totals] == expected
