"""parallel_apply: the order of the modules' work and the caller's queued work."""

import pytest
import torch
from torch import nn

from spec_tests.checks.side_streams import on_side_streams, queued_arange, queued_copies
from spec_tests.machine.clauses import clause
from spec_tests.strategies.parallel_apply import ordinals

#: Three times the elements of `queued_arange(topology, slot, 4)`.
TRIPLED = [3.0, 6.0, 9.0, 12.0]


class Scaling(nn.Module):
    """A module that multiplies by three in two operations, on the device of its input or another.

    Args:
        device: The other device, if any.
    """

    def __init__(self, device=None):
        super().__init__()
        self.device = device

    def forward(self, x):
        """Return three times ``x`` on the device of ``x``."""
        moved = x.to(self.device or x.device)
        return (moved + 2 * moved).to(x.device)


def _inputs(topology, count):
    return [queued_arange(topology, slot, 4) for slot in range(count)]


def _run(target, topology, modules, inputs):
    devices = ordinals(topology, range(len(modules)))
    return target.parallel_apply.parallel_apply(modules, inputs, devices=devices)


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize(
    ("count", "elsewhere"), [(1, False), (2, False), (4, False), (1, True), (3, True)]
)
def test_modules_are_ordered_with_the_callers_queued_work(target, topology, count, elsewhere):
    # In PyTorch 1.11 modules ran on the default streams (#78824).
    with on_side_streams(topology):
        devices = [topology.device(slot + 1) if elsewhere else None for slot in range(count)]
        found = _run(target, topology, [*map(Scaling, devices)], _inputs(topology, count))
        found = queued_copies(*found)
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_calls_on_changing_streams_are_ordered_with_the_callers_work(target, topology):
    for _ in range(3):
        with on_side_streams(topology):
            found = _run(target, topology, [Scaling()] * 3, _inputs(topology, 3))
            found = queued_copies(*found)
        assert [queued_copies(tensor)[0].tolist() for tensor in found] == [TRIPLED] * 3


@clause("parallel_apply.queue-order")
@pytest.mark.parametrize("count", [1, 3])
def test_inputs_may_be_changed_after_the_call_returns(target, topology, count):
    with on_side_streams(topology):
        inputs = _inputs(topology, count)
        found = _run(target, topology, [Scaling()] * count, inputs)
        for tensor in inputs:
            tensor.zero_()
        del inputs, tensor
        found = queued_copies(*found)
    assert [tensor.tolist() for tensor in found] == [TRIPLED] * count


@clause("parallel_apply.queue-order")
def test_gradients_are_ready_on_the_streams_of_backwards_caller(target, topology):
    with on_side_streams(topology):
        inputs = [x.requires_grad_() for x in _inputs(topology, 3)]
        found = _run(target, topology, [Scaling()] * 3, inputs)
        torch.autograd.backward([output.sum() for output in found])
        del found
        gradients = queued_copies(*(x.grad for x in inputs))
    assert [gradient.tolist() for gradient in gradients] == [[3.0] * 4] * 3
