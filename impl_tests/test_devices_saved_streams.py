"""impl._devices: backward runs on the streams of forward, and restores streams."""

import pytest
import torch

from impl.functions import Scatter
from spec_tests.harness.concurrency.side_streams import on_side_streams, queued_arange


class RecordStreams(torch.autograd.Function):
    """An autograd function whose backward appends the current stream of each device to a list."""

    @staticmethod
    def forward(ctx, tensor, topology, records):
        ctx.records, ctx.devices = records, topology.devices
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.records.append([torch.accelerator.current_stream(d) for d in ctx.devices])
        return grad, None, None


def _streams_after_scatter(topology):
    """Run backward through Scatter; return the streams that are current after its backward."""
    records = []
    leaf = queued_arange(topology, 0, 3, 2).requires_grad_()
    chunks = Scatter.apply(topology.take(3), None, 0, RecordStreams.apply(leaf, topology, records))
    torch.autograd.backward([chunk.sum() for chunk in chunks])
    return records[0]


def test_backward_of_scatter_restores_the_streams_of_all_devices_but_the_first(topology):
    topology.require(distinct=2)
    expected = _streams_after_scatter(topology)
    with on_side_streams(topology):
        found = _streams_after_scatter(topology)
        first = torch.accelerator.current_stream(topology.device(0))
    assert found == [first, *expected[1:]]


def _fail(*_):
    raise RuntimeError("nothing can be joined")


def test_streams_are_restored_if_backward_fails(topology, monkeypatch):
    topology.require(distinct=2)
    expected = _streams_after_scatter(topology)
    with on_side_streams(topology), monkeypatch.context() as patch:
        patch.setattr("impl.functions.cat_on_device", _fail)
        with pytest.raises(RuntimeError, match="nothing can be joined"):
            _streams_after_scatter(topology)
    # This graph has no node that sets streams, so backward sees the current streams of its thread.
    records = []
    leaf = queued_arange(topology, 0, 3).requires_grad_()
    RecordStreams.apply(leaf, topology, records).sum().backward()
    assert records == [expected]
