"""impl._device.saved_streams: backward borrows the streams of forward, and gives them back."""

from types import SimpleNamespace

import pytest
import torch

from impl._device import saved_streams
from impl._device.saved_streams import hand_over
from impl.functions import Scatter
from spec_tests.harness.concurrency.side_streams import on_side_streams, queued


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


class Stream:
    """Says on which device's stream it was made to wait for which other's."""

    def __init__(self, device, waits):
        self.device, self.waits = device, waits

    def wait_stream(self, other):
        self.waits.append((self.device, other.device))


@pytest.fixture
def waits(monkeypatch):
    """Which device's stream waits for which other's."""
    found = []
    monkeypatch.setattr(saved_streams, "current_stream", lambda device: Stream(device, found))
    return found


def test_what_is_handed_over_from_another_device_is_waited_for(topology, waits):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    grad = torch.ones(1, device=second)
    with torch.accelerator.device_index(first.index):
        assert hand_over(grad) is grad
    assert waits == [(first, second)]


@pytest.mark.parametrize("home", [0, None], ids="home={}".format)
def test_what_is_at_hand_is_not_waited_for(topology, waits, home):
    grad = torch.ones(1, device=topology.device(home))
    with torch.accelerator.device_index(topology.device(0).index):
        assert hand_over(grad) is grad
    assert waits == []


@pytest.mark.parametrize(
    ("device", "kind", "expected"),
    [
        ("cuda:0", "cuda", True),
        ("meta", "sim", False),
        ("mps", "mps", False),
        ("cpu", None, False),
    ],
)
def test_only_the_accelerators_devices_with_streams_have_a_current_one(
    monkeypatch, device, kind, expected
):
    monkeypatch.setattr(saved_streams, "accelerator_type", lambda: kind)
    assert saved_streams._has_current(torch.device(device)) == expected


def test_streams_of_the_accelerators_devices_are_kept_once(topology):
    ctx = SimpleNamespace()
    device = topology.device(0)
    saved_streams.keep_streams(ctx, [torch.device("cpu"), device, torch.device("meta"), device])
    assert ctx.streams == [torch.accelerator.current_stream(device)]


def test_backward_keeps_its_name():
    assert Scatter.backward.__name__ == "backward"
