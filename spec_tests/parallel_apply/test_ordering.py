"""Work of the modules is in order with what their caller queues before and afterwards."""

import pytest
import torch
from torch import nn

from spec_tests.harness.concurrency.side_streams import on_side_streams, queued, used
from spec_tests.harness.conformance.clauses import clause

TRIPLED = [3.0, 6.0, 9.0, 12.0]


class Scaling(nn.Module):
    """Multiplies by three, in two steps with memory of its own between them."""

    def forward(self, x):
        """The product."""
        return x + 2 * x


class Sending(nn.Module):
    """Sends its input to a neighbour and back."""

    def __init__(self, neighbour):
        super().__init__()
        self.neighbour = neighbour

    def forward(self, x):
        """Three times the input."""
        return (x.to(self.neighbour) * 3).to(x.device)


def _run(target, topology, modules):
    count = len(modules)
    inputs = [queued(topology, slot, 4) for slot in range(count)]
    devices = [device.index for device in topology.take(count)]
    return target.parallel_apply.parallel_apply(modules, inputs, devices=devices)


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_modules_work_behind_and_before_what_the_caller_queues(target, topology, count):
    # PyTorch 1.11: modules ran on the default streams (#78824).
    with on_side_streams(topology):
        found = used(*_run(target, topology, [Scaling()] * count))
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 3])
def test_modules_work_on_other_devices_in_order_too(target, topology, count):
    with on_side_streams(topology):
        modules = [Sending(topology.device(slot + 1)) for slot in range(count)]
        found = used(*_run(target, topology, modules))
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_a_later_call_on_other_streams_is_in_order(target, topology):
    for _ in range(3):
        with on_side_streams(topology):
            found = used(*_run(target, topology, [Scaling()] * 3))
        assert [used(tensor)[0].tolist() for tensor in found] == [TRIPLED] * 3


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 3])
def test_inputs_may_be_changed_once_the_call_returns(target, topology, count):
    with on_side_streams(topology):
        inputs = [queued(topology, slot, 4) for slot in range(count)]
        devices = [device.index for device in topology.take(count)]
        found = target.parallel_apply.parallel_apply([Scaling()] * count, inputs, devices=devices)
        for tensor in inputs:
            tensor.zero_()
        del inputs, tensor
        found = used(*found)
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_gradients_are_ready_where_backward_was_called(target, topology):
    with on_side_streams(topology):
        inputs = [queued(topology, slot, 4).requires_grad_() for slot in range(3)]
        devices = [device.index for device in topology.take(3)]
        found = target.parallel_apply.parallel_apply([Scaling()] * 3, inputs, devices=devices)
        torch.autograd.backward([each.sum() for each in found])
        del found
        slopes = used(*(each.grad for each in inputs))
    assert [slope.tolist() for slope in slopes] == [[3.0] * 4] * 3
