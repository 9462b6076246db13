"""impl._kept_streams: backward borrows the streams of forward, and gives them back."""

import pytest
import torch

from impl.functions import Scatter
from spec_tests.harness.queues import on_side_streams, queued


class Looking(torch.autograd.Function):
    """The identity; notes the current streams of all devices in backward."""

    @staticmethod
    def forward(ctx, tensor, topology, notes):
        ctx.notes, ctx.devices = notes, topology.devices
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.notes.append([torch.accelerator.current_stream(each) for each in ctx.devices])
        return grad, None, None


def _seen_behind_scatter(topology):
    """The current streams in the thread of autograd, once Scatter's backward is through."""
    notes = []
    leaf = queued(topology, 0, 3, 2).requires_grad_()
    chunks = Scatter.apply(topology.take(3), None, 0, Looking.apply(leaf, topology, notes))
    torch.autograd.backward([chunk.sum() for chunk in chunks])
    return notes[0]


def test_the_streams_of_other_devices_are_given_back(topology):
    topology.require(distinct=2)
    expected = _seen_behind_scatter(topology)
    with on_side_streams(topology):
        found = _seen_behind_scatter(topology)
        first = torch.accelerator.current_stream(topology.device(0))
    assert found == [first, *expected[1:]]


def _fail(*_):
    raise RuntimeError("nothing can be joined")


def test_they_are_given_back_when_backward_fails(topology, monkeypatch):
    topology.require(distinct=2)
    expected = _seen_behind_scatter(topology)
    with on_side_streams(topology), monkeypatch.context() as patch:
        patch.setattr("impl.functions.join", _fail)
        with pytest.raises(RuntimeError, match="nothing can be joined"):
            _seen_behind_scatter(topology)
    # Without streams to keep, the next backward shows what the thread was left with.
    notes = []
    leaf = queued(topology, 0, 3).requires_grad_()
    Looking.apply(leaf, topology, notes).sum().backward()
    assert notes == [expected]
