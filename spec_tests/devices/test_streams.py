"""Streams: their device, the current stream of each device and thread, and the order of work."""

import itertools
from contextlib import suppress

import torch
from torch import accelerator

from spec_tests import simulator
from spec_tests.checks.side_streams import DELAY, late_copies, require_order, write_late
from spec_tests.checks.threads import call_in_thread
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import SYNCHRONOUS, queue_work


@clause("devices.streams.current")
def test_the_current_stream_is_a_stream_of_its_device(topology):
    for current, device in itertools.product(dict.fromkeys(topology.devices), repeat=2):
        with accelerator.device_index(current.index):
            found = accelerator.current_stream(device.index).device
        assert found == device, f"with {current} current, the stream of {device} is on {found}"


@clause("devices.streams.waits")
def test_a_stream_waits_for_a_stream_of_another_device(topology):
    streams = [accelerator.current_stream(device.index) for device in topology.devices]
    for waiting, awaited in itertools.permutations(streams, 2):
        waiting.wait_stream(awaited)


@clause("devices.streams.new")
def test_a_new_stream_becomes_the_current_one_of_its_device(topology):
    devices = dict.fromkeys(topology.devices)
    before = {device: accelerator.current_stream(device.index) for device in devices}
    device_before = accelerator.current_device_index()
    for device in devices:
        stream = torch.Stream(device)
        assert stream.device == device, f"torch.Stream({device}) is on {stream.device}"
        accelerator.set_stream(stream)
        found = accelerator.current_stream(device.index)
        index = accelerator.current_device_index()
        accelerator.set_stream(before[device])
        assert found == stream, f"after set_stream({stream}), {found} is current"
        assert index == device.index, f"after set_stream({stream}), device {index} is current"
    accelerator.set_device_index(device_before)


@clause("devices.streams.distinct")
def test_a_new_stream_differs_from_the_current_one(topology):
    for device in topology.devices:
        new, current = torch.Stream(device), accelerator.current_stream(device.index)
        assert new != current, f"torch.Stream({device}) returns the current stream"


@clause("devices.streams.per-device")
def test_a_stream_of_one_device_keeps_the_streams_of_the_others(topology):
    topology.require(distinct=2)
    first, second = topology.take(2)
    before = accelerator.current_stream(first.index)
    with torch.Stream(second):
        found = accelerator.current_stream(first.index)
    assert found == before, f"a stream of {second} makes {found} current on {first}"


@clause("devices.streams.per-thread")
def test_each_thread_has_its_own_current_streams(topology):
    device = topology.device(0)
    with torch.Stream(device) as stream:
        found = call_in_thread(accelerator.current_stream, device.index)
    assert found != stream, f"{stream} is current in a new thread, too"


@clause("devices.streams.restored")
def test_an_error_in_a_block_restores_stream_and_device(topology):
    for device in topology.devices:
        before = accelerator.current_device_index(), accelerator.current_stream(device.index)
        with suppress(ZeroDivisionError), torch.Stream(device):
            1 / 0  # noqa: B018
        found = accelerator.current_device_index(), accelerator.current_stream(device.index)
        assert found == before, f"after a block, device and stream are {found}, not {before}"


@clause("devices.streams.asynchronous")
def test_a_stream_that_does_not_wait_reads_too_early(topology):
    found = any(_reads_too_early(topology.device(0)) for _ in range(10))
    if not found:
        raise NotImplementedError(SYNCHRONOUS)


def _reads_too_early(device):
    written = torch.zeros(1, device=device)
    accelerator.synchronize(device)
    if device.type == "sim":  # An operator has finished when it returns. Only copies can be late.
        with simulator.races(late_copies=0):
            return torch.ones(1).copy_(written, non_blocking=True).item() == 1
    with torch.Stream(device):
        queue_work(device, 50)
        written.fill_(1)
    is_early = (written * 1).item() == 0
    accelerator.synchronize(device)
    return is_early


@clause("devices.streams.order")
def test_a_stream_that_waits_reads_the_written_value(topology):
    with late_copies(topology):
        for device in topology.devices:
            written, side = write_late(device)
            accelerator.current_stream(device.index).wait_stream(side)
            found = (written * 2).tolist()
            assert found == [2, 2], f"{device}: the stream that waits reads {found}"


@clause("devices.streams.order-over-devices")
def test_waits_over_two_devices_order_the_work(topology):
    topology.require(distinct=2)
    first, second = topology.take(2)
    with late_copies(topology):
        written, side = write_late(first)
        current = accelerator.current_stream(first.index)
        other = accelerator.current_stream(second.index)
        other.wait_stream(side)
        current.wait_stream(other)
        found = (written * 2).tolist()
    assert found == [2, 2], f"{current} waits for {other}, which waits for {side}: {found}"


@clause("devices.streams.operators")
def test_an_operator_runs_on_the_stream_of_its_operands_device(topology):
    topology.require(distinct=2)
    require_order()
    device, current = topology.take(2)
    with late_copies(topology):
        x = torch.zeros(2, device=device)
        side, before = torch.Stream(device), accelerator.current_stream(device.index)
        side.wait_stream(before)
        with side:
            queue_work(device, DELAY)
            x.fill_(1)
            with accelerator.device_index(current.index):
                found = x * 2
        before.wait_stream(side)
        found = found.tolist()
    assert found == [2, 2], f"with {current} current, an operator on {device} reads {found}"
