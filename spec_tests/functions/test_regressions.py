"""What once was wrong in the autograd Functions."""

import pytest
import torch

from spec_tests.functions.gradient_penalty import (
    gradient_in_line,
    gradient_of_helper,
    plain,
    spread,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency import delayed_inputs
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensors import TensorSpec, counting


def _leaves(topology):
    """A weight and six rows; whole numbers, so that all sums are exact in double precision."""
    specs = [TensorSpec(shape, torch.float64, requires_grad=True) for shape in [(1, 2), (6, 2)]]
    return [spec.build(topology) for spec in specs]


@clause("functions.penalty.in-a-helper")
def test_a_penalty_computed_in_a_helper_has_its_gradient(target, topology):
    # PyTorch 1.0: once the output was out of scope, the weight's gradient was lost (#16532).
    found = gradient_of_helper(spread(target, topology), *_leaves(topology))
    checks.same(found, gradient_of_helper(plain, *_leaves(topology)))


@clause("functions.penalty.in-line")
def test_a_penalty_computed_in_line_has_its_gradient(target, topology):
    # PyTorch 0.2: "Scatter is not differentiable twice" (#2467).
    found = gradient_in_line(spread(target, topology), *_leaves(topology))
    checks.same(found, gradient_in_line(plain, *_leaves(topology)))


@clause("functions.broadcast.gradient-layout")
@pytest.mark.parametrize("layout", ["channels_last", "transposed", "contiguous"])
def test_the_accumulated_gradient_has_the_strides_of_its_leaf(target, topology, layout):
    # PyTorch 1.5: gradients of channels-last weights came out row-major (#34904).
    weight = TensorSpec((4, 3, 2, 2), layout=layout, requires_grad=True).build(topology)
    copies = target.functions.Broadcast.apply(topology.take(2), weight, weight.detach())
    sum((copy * 2).sum().cpu() for copy in copies[::2]).backward()
    assert weight.grad.stride() == weight.stride()
    assert weight.grad.unique().tolist() == [4.0]


class _NotesDevice(torch.autograd.Function):
    """The identity; notes which device is current, forward and backward."""

    @staticmethod
    def forward(ctx, tensor, notes):
        ctx.notes = notes
        return tensor.clone()

    @staticmethod
    def backward(ctx, slope):
        ctx.notes.append(torch.accelerator.current_device_index())
        return slope, None


@clause("functions.backward-on-own-device")
def test_the_backward_of_a_chunk_runs_with_its_device_current(target, topology):
    # PyTorch 0.1: device 0 was current in every replica's backward (#2017).
    rows = counting((4, 2), torch.float32, topology.device(0)).requires_grad_()
    notes = [[] for _ in range(4)]
    chunks = target.functions.Scatter.apply(topology.take(4), None, 0, rows)
    seen = [_NotesDevice.apply(chunk, note) for chunk, note in zip(chunks, notes, strict=True)]
    target.functions.Gather.apply(topology.device(0), 0, *seen).sum().backward()
    assert notes == [[device.index] for device in topology.take(4)]


@clause("functions.scatter.cpu-input-is-ready")
@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
def test_a_chunk_from_the_cpu_may_be_read_at_once(target, topology, pinned):
    # PyTorch 1.0: readers on the current stream overtook the copy (maskrcnn-benchmark #512).
    rows = torch.arange(2**22, dtype=torch.float32)
    rows = rows.pin_memory() if pinned and topology.accelerator == "cuda" else rows
    expected = (rows.double() + 1).sum().item()
    for _ in range(10):
        # Each round frees its chunks while their readers may still be queued.
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        total = sum((chunk.double() + 1).sum().cpu() for chunk in chunks)
        assert total.item() == expected


def _pinned(topology, first):
    rows = torch.arange(first, first + 2**20, dtype=torch.float32)
    return rows.pin_memory() if topology.accelerator == "cuda" else rows


@clause("functions.scatter.cpu-input-is-ready")
def test_a_chunk_whose_copy_begins_late_may_be_read_at_once(target, topology):
    rows = _pinned(topology, 0)
    streams = target.submodule("_functions")
    for device in dict.fromkeys(topology.devices):
        with streams._get_stream(device):
            delayed_inputs.queue_sleep(device, 20)
    chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
    assert torch.cat([chunk.cpu() for chunk in chunks]).equal(rows)


@clause("functions.scatter.cpu-input-is-ready")
def test_a_chunk_may_be_freed_before_it_has_been_read(target, topology):
    totals, expected = [], []
    for number in range(4):
        rows = _pinned(topology, number)
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        for device in dict.fromkeys(topology.devices):
            delayed_inputs.queue_sleep(device, 20)
        # Their readers wait; where nobody says so, the next chunks get the memory and fill it.
        totals.append([chunk.double().sum() for chunk in chunks])
        expected.append([part.double().sum() for part in rows.chunk(3)])
        del chunks
    assert [[each.item() for each in row] for row in totals] == expected
