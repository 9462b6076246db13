"""impl._streams: side streams, missing devices, and the streams of backward."""

import pkgutil

import pytest
import torch

from impl import DataParallel, _streams, comm, scatter
from impl.functions import Broadcast, Scatter, _get_stream
from spec_tests.checks.side_streams import on_side_streams, queued_arange


def test_set_current_streams_does_not_set_streams_that_are_current(topology, monkeypatch):
    # On CUDA, set_stream would create a context on an unused device, and a context takes memory.
    streams = [*map(_streams.current_stream, dict.fromkeys(topology.devices))]
    monkeypatch.setattr(torch.accelerator, "set_stream", None)
    _streams.set_current_streams(streams)


def _refuse_streams(*_):
    raise RuntimeError("Backend doesn't support create a new Stream.")


class StreamWithoutWaits(torch.Stream):
    wait_stream = _refuse_streams


def test_back_end_whose_streams_cannot_wait_has_no_side_streams(topology, monkeypatch):
    monkeypatch.setattr(torch, "Stream", StreamWithoutWaits)
    assert not _streams._has_side_streams.__wrapped__(topology.device(0))


@pytest.mark.parametrize("name", ["Stream", "Tensor.record_stream"])
def test_chunks_are_copied_on_the_current_stream_if_side_streams_cannot_be_used(
    topology, monkeypatch, name
):
    owner, _, attribute = f"torch.{name}".rpartition(".")
    monkeypatch.setattr(pkgutil.resolve_name(owner), attribute, _refuse_streams)
    monkeypatch.setattr(_streams, "_side_streams", {})
    _streams._has_side_streams.cache_clear()
    chunks = Scatter.apply(topology.take(2), None, 0, torch.arange(4.0))
    assert [chunk.tolist() for chunk in chunks] == [[0, 1], [2, 3]]
    assert _streams.side_stream(topology.device(0)) is None
    _streams._has_side_streams.cache_clear()


#: Calls that ask for the stream of a missing device. ``x`` is on the CPU, ``y`` on the device.
STREAM_CALLS = {
    "scatter": lambda x, y, devices, missing: scatter(x, [devices[0], missing]),
    "Scatter": lambda x, y, devices, missing: Scatter.apply([devices[0], missing], None, 0, x),
    "Broadcast": lambda x, y, devices, missing: Broadcast.apply([devices[0], missing], y),
    "DataParallel": lambda x, y, devices, missing: DataParallel(
        torch.nn.Identity(), [devices[0], missing]
    )(x),
    "_get_stream": lambda x, y, devices, missing: _get_stream(missing),
}


@pytest.mark.parametrize("call", STREAM_CALLS.values(), ids=STREAM_CALLS)
def test_stream_of_a_missing_device_is_not_asked_for(topology, monkeypatch, call):
    # A back end may end the process instead of raising an error.
    count = torch.accelerator.device_count()
    missing = torch.device(topology.accelerator, count)
    asked = []
    current_stream = torch.accelerator.current_stream
    monkeypatch.setattr(
        torch.accelerator,
        "current_stream",
        lambda *device: asked.extend(device) or current_stream(*device),
    )
    x = torch.ones(4)
    text = f"There is no device {missing}: the number of {topology.accelerator} devices is {count}"
    with pytest.raises(RuntimeError, match=text):
        call(x, x.to(topology.device(0)), topology.take(1), missing)
    assert count not in asked


@pytest.mark.parametrize("base", [torch.Stream, object], ids=["subclass", "other class"])
def test_scatter_accepts_streams_of_a_class_that_the_back_end_replaced(
    topology, monkeypatch, base
):
    device = topology.device(0)
    current = torch.accelerator.current_stream(device.index)
    monkeypatch.setattr(torch, "Stream", type("Stream", (base,), {}))
    (chunk,) = comm.scatter(torch.ones(2), [device], streams=[current])
    assert chunk.device == device
    with pytest.raises(RuntimeError, match="Unknown data type found in stream list"):
        comm.scatter(torch.ones(2), [device], streams=[object()])


def record_streams(tensor, topology, records):
    """Return a copy of a tensor. Its backward appends the current stream of each device."""
    copy = tensor.clone()
    copy.register_hook(
        lambda _: records.append([torch.accelerator.current_stream(d) for d in topology.devices])
    )
    return copy


def _streams_after_scatter(topology):
    """Run backward through Scatter; return the streams that are current after its backward."""
    records = []
    leaf = queued_arange(topology, 0, 3, 2).requires_grad_()
    chunks = Scatter.apply(topology.take(3), None, 0, record_streams(leaf, topology, records))
    torch.autograd.backward([chunk.sum() for chunk in chunks])
    return records[0]


def test_streams_are_restored_if_backward_fails(topology, monkeypatch):
    topology.require(distinct=2)
    expected = _streams_after_scatter(topology)
    with on_side_streams(topology), monkeypatch.context() as patch:
        patch.setattr("impl.functions.cat_on_device", _refuse_streams)
        with pytest.raises(RuntimeError, match="create a new Stream"):
            _streams_after_scatter(topology)
    # This graph has no node that sets streams, so backward sees the current streams of its thread.
    records = []
    leaf = queued_arange(topology, 0, 3).requires_grad_()
    record_streams(leaf, topology, records).sum().backward()
    assert records == [expected]
