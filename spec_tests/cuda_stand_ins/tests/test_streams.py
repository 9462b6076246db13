"""The streams on which scatter copies: a given stream is also used for later copies of the call.

The result of a copy does not show its stream. `copy_streams` therefore records the streams with a
dispatch mode.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spec_tests import cuda_stand_ins

# A dispatch mode does not see the copies of the CUDA primitives, so only the stand-ins are tested.
scatter = cuda_stand_ins.STAND_INS["_scatter"]
scatter_out = cuda_stand_ins.STAND_INS["_scatter_out"]
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class RecordCopies(TorchDispatchMode):
    """A dispatch mode that records the current device and stream of each copy."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in COPIES:
            index = torch.accelerator.current_device_index()
            self.copies.append((index, torch.accelerator.current_stream(index)))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def two_ordinals(topology):
    """Yield the ordinals of two different devices; the first device is the current device."""
    topology.require(distinct=2)
    first, second = sorted(set(topology.ordinals))[:2]
    with torch.accelerator.device_index(first):
        yield first, second


@pytest.fixture
def stream(two_ordinals, topology):
    """Return a stream of the second device."""
    return torch.Stream(device=torch.device(topology.accelerator, two_ordinals[1]))


def copy_streams(function, *args):
    with RecordCopies() as mode:
        function(*args)
    return mode.copies


def test_copy_runs_on_the_given_stream_and_its_device(two_ordinals, stream):
    copies = copy_streams(scatter, torch.zeros(4), [two_ordinals[1]], None, 0, [stream])
    assert copies == [(two_ordinals[1], stream)]


def test_stream_stays_current_until_another_stream_is_given(two_ordinals, stream):
    other = torch.Stream(device=stream.device)
    second = two_ordinals[1]
    devices, streams = [second] * 4, [stream, None, other]
    copies = copy_streams(scatter, torch.zeros(4), devices, None, 0, streams)
    assert copies == [(second, stream), (second, stream), (second, other), (second, other)]


def test_scatter_out_keeps_the_stream_for_later_copies(two_ordinals, stream):
    outs = [torch.zeros(2, device=stream.device) for _ in range(2)]
    stream.wait_stream(torch.accelerator.current_stream(stream.device))
    copies = copy_streams(scatter_out, torch.zeros(4), outs, 0, [stream, None])
    stream.synchronize()
    assert copies == [(two_ordinals[1], stream), (two_ordinals[1], stream)]


def test_copies_without_streams_keep_the_current_device_and_stream(two_ordinals):
    current = torch.accelerator.current_stream(two_ordinals[0])
    copies = copy_streams(scatter, torch.zeros(4), list(two_ordinals), None, 0, None)
    assert copies == [(two_ordinals[0], current), (two_ordinals[0], current)]


def test_surplus_streams_are_ignored(two_ordinals, stream):
    assert len(scatter(torch.zeros(4), [two_ordinals[0]], None, 0, [None, stream, stream])) == 1


def test_device_and_streams_are_restored(two_ordinals, stream):
    before = [torch.accelerator.current_stream(index) for index in two_ordinals]
    scatter(
        torch.zeros(4),
        [two_ordinals[1], two_ordinals[1]],
        None,
        0,
        [stream, torch.Stream(stream.device)],
    )
    assert torch.accelerator.current_device_index() == two_ordinals[0]
    assert [torch.accelerator.current_stream(index) for index in two_ordinals] == before


def test_device_and_streams_are_restored_after_an_error(two_ordinals, stream):
    before = [torch.accelerator.current_stream(index) for index in two_ordinals]
    tensor = torch.zeros(4, device=before[0].device)
    with pytest.raises(RuntimeError, match="non-negative"):
        scatter(tensor, [two_ordinals[1], -1], None, 0, [stream])
    assert torch.accelerator.current_device_index() == two_ordinals[0]
    assert [torch.accelerator.current_stream(index) for index in two_ordinals] == before


def test_copy_runs_on_the_current_stream_if_that_stream_is_given(two_ordinals, stream):
    with stream:
        copies = copy_streams(scatter, torch.zeros(4), [two_ordinals[1]], None, 0, [stream])
        assert torch.accelerator.current_stream(two_ordinals[1]) == stream
    assert copies == [(two_ordinals[1], stream)]
