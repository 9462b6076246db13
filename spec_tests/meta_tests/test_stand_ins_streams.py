"""The streams that scatter copies on: sticky within a call, restored after it.

Copies themselves leave no trace of the stream they ran on, so `copied_on` watches the operators.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spec_tests import cuda_stand_ins

# The real primitives run below what Python can watch.
scatter = cuda_stand_ins.STAND_INS["_scatter"]
scatter_out = cuda_stand_ins.STAND_INS["_scatter_out"]
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Watch(TorchDispatchMode):
    """Notes, for each copy, the current device and its current stream."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in COPIES:
            index = torch.accelerator.current_device_index()
            self.copies.append((index, torch.accelerator.current_stream(index)))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def two(topology):
    """The ordinals of two different devices; the first is current."""
    topology.require(distinct=2)
    first, second = sorted(set(topology.ordinals))[:2]
    with torch.accelerator.device_index(first):
        yield first, second


@pytest.fixture
def stream(two, topology):
    """A stream of the second device."""
    return torch.Stream(device=torch.device(topology.accelerator, two[1]))


def copied_on(function, *args):
    with Watch() as watch:
        function(*args)
    return watch.copies


def test_copy_runs_on_the_given_stream_and_its_device(two, stream):
    copies = copied_on(scatter, torch.zeros(4), [two[1]], None, 0, [stream])
    assert copies == [(two[1], stream)]


def test_stream_stays_current_until_another_stream_is_given(two, stream):
    other = torch.Stream(device=stream.device)
    second = two[1]
    devices, streams = [second] * 4, [stream, None, other]
    copies = copied_on(scatter, torch.zeros(4), devices, None, 0, streams)
    assert copies == [(second, stream), (second, stream), (second, other), (second, other)]


def test_scatter_out_keeps_the_stream_for_later_copies(two, stream):
    outs = [torch.zeros(2, device=stream.device) for _ in range(2)]
    stream.wait_stream(torch.accelerator.current_stream(stream.device))
    copies = copied_on(scatter_out, torch.zeros(4), outs, 0, [stream, None])
    stream.synchronize()
    assert copies == [(two[1], stream), (two[1], stream)]


def test_copies_without_streams_keep_the_current_device(two):
    current = torch.accelerator.current_stream(two[0])
    copies = copied_on(scatter, torch.zeros(4), list(two), None, 0, None)
    assert copies == [(two[0], current), (two[0], current)]


def test_surplus_streams_are_ignored(two, stream):
    assert len(scatter(torch.zeros(4), [two[0]], None, 0, [None, stream, stream])) == 1


def test_device_and_streams_are_restored(two, stream):
    before = [torch.accelerator.current_stream(index) for index in two]
    scatter(torch.zeros(4), [two[1], two[1]], None, 0, [stream, torch.Stream(stream.device)])
    assert torch.accelerator.current_device_index() == two[0]
    assert [torch.accelerator.current_stream(index) for index in two] == before


def test_device_and_streams_are_restored_after_an_error(two, stream):
    before = [torch.accelerator.current_stream(index) for index in two]
    tensor = torch.zeros(4, device=before[0].device)
    with pytest.raises(RuntimeError, match="non-negative"):
        scatter(tensor, [two[1], -1], None, 0, [stream])
    assert torch.accelerator.current_device_index() == two[0]
    assert [torch.accelerator.current_stream(index) for index in two] == before


def test_current_stream_can_be_given(two, stream):
    with stream:
        copies = copied_on(scatter, torch.zeros(4), [two[1]], None, 0, [stream])
        assert torch.accelerator.current_stream(two[1]) == stream
    assert copies == [(two[1], stream)]
