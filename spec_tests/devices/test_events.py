"""Events: they order streams, tell whether work is done, and measure time."""

import time

import torch
from torch import accelerator

from spec_tests.checks.side_streams import late_copies, write_late
from spec_tests.machine.capabilities import require
from spec_tests.machine.clauses import clause


@clause("devices.events.done")
def test_an_event_is_done_after_the_host_has_waited_for_it(topology):
    for device in topology.devices:
        event = torch.Event(device)
        event.record(accelerator.current_stream(device.index))
        event.synchronize()
        assert event.query(), f"{device}: query() is False after synchronize()"


@clause("devices.events.order")
def test_a_stream_waits_for_the_work_before_an_event(topology):
    require("new-streams")
    device = topology.device(0)
    with late_copies(topology):
        current = accelerator.current_stream(device.index)
        event = torch.Event(device)
        event.record(current)
        written, side = write_late(device)
        event.record(side)
        current.wait_event(event)
        found = (written * 2).tolist()
    assert found == [2, 2], f"the stream that waits for the event reads {found}"


@clause("devices.events.time")
def test_elapsed_time_is_in_milliseconds(topology):
    device = topology.device(0)
    stream = accelerator.current_stream(device.index)
    events = [torch.Event(device, enable_timing=True) for _ in range(2)]
    start = time.perf_counter()
    events[0].record(stream)
    events[0].synchronize()
    inner = time.perf_counter()
    time.sleep(0.02)
    least = (time.perf_counter() - inner) * 1000
    events[1].record(stream)
    events[1].synchronize()
    most = (time.perf_counter() - start) * 1000
    found = events[0].elapsed_time(events[1])
    # A device may have another clock than the host, with a resolution of half a microsecond.
    assert 0.99 * least <= found <= 1.01 * most, f"{found} ms is not in {least} to {most} ms"
