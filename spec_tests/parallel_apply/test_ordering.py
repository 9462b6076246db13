"""parallel_apply: the order of the modules' work and the caller's queued work."""

import pytest
import torch
from torch import nn

from spec_tests.harness.concurrency.side_streams import (
    on_side_streams,
    queued_arange,
    queued_copies,
)
from spec_tests.harness.conformance.clauses import clause

#: Three times the elements of `queued_arange(topology, slot, 4)`.
TRIPLED = [3.0, 6.0, 9.0, 12.0]


class Scaling(nn.Module):
    """A module that multiplies by three in two operations with an intermediate tensor."""

    def forward(self, x):
        """Return three times ``x``."""
        return x + 2 * x


class ScalingOnAnotherDevice(nn.Module):
    """A module that multiplies its input by three on another device."""

    def __init__(self, neighbour):
        super().__init__()
        self.neighbour = neighbour

    def forward(self, x):
        """Return three times ``x`` on the device of ``x``."""
        return (x.to(self.neighbour) * 3).to(x.device)


def _run(target, topology, modules):
    count = len(modules)
    inputs = [queued_arange(topology, slot, 4) for slot in range(count)]
    devices = [device.index for device in topology.take(count)]
    return target.parallel_apply.parallel_apply(modules, inputs, devices=devices)


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_modules_are_ordered_with_the_callers_queued_work(target, topology, count):
    # In PyTorch 1.11 modules ran on the default streams (#78824).
    with on_side_streams(topology):
        found = queued_copies(*_run(target, topology, [Scaling()] * count))
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 3])
def test_work_of_a_module_on_another_device_is_ordered(target, topology, count):
    with on_side_streams(topology):
        modules = [ScalingOnAnotherDevice(topology.device(slot + 1)) for slot in range(count)]
        found = queued_copies(*_run(target, topology, modules))
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_calls_on_changing_streams_are_ordered_with_the_callers_work(target, topology):
    for _ in range(3):
        with on_side_streams(topology):
            found = queued_copies(*_run(target, topology, [Scaling()] * 3))
        assert [queued_copies(tensor)[0].tolist() for tensor in found] == [TRIPLED] * 3


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 3])
def test_inputs_may_be_changed_after_the_call_returns(target, topology, count):
    with on_side_streams(topology):
        inputs = [queued_arange(topology, slot, 4) for slot in range(count)]
        devices = [device.index for device in topology.take(count)]
        found = target.parallel_apply.parallel_apply([Scaling()] * count, inputs, devices=devices)
        for tensor in inputs:
            tensor.zero_()
        del inputs, tensor
        found = queued_copies(*found)
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_gradients_are_ready_on_the_streams_of_backwards_caller(target, topology):
    with on_side_streams(topology):
        inputs = [queued_arange(topology, slot, 4).requires_grad_() for slot in range(3)]
        devices = [device.index for device in topology.take(3)]
        found = target.parallel_apply.parallel_apply([Scaling()] * 3, inputs, devices=devices)
        torch.autograd.backward([output.sum() for output in found])
        del found
        gradients = queued_copies(*(x.grad for x in inputs))
    assert [gradient.tolist() for gradient in gradients] == [[3.0] * 4] * 3
