"""Events, and waiting for streams, devices and the host."""

import torch
from torch import Tensor

from .rows import current, device, program, send, stream


def _sent_beside() -> tuple[Tensor, torch.Stream]:
    side = stream(0)
    with side:
        sent = send(0)
    sent.record_stream(current(0))
    return sent, side


@program("events")
def an_event_holds_what_was_queued_before_it(right: bool) -> Tensor:
    side, event = stream(0), torch.Event(device(0))
    if not right:
        event.record(side)
    with side:
        sent = send(0)
    if right:
        event.record(side)
    current(0).wait_event(event)
    sent.record_stream(current(0))
    return sent


@program("stream-calls")
def an_event_holds_up_the_stream_that_waits(right: bool) -> Tensor:
    sent, side = _sent_beside()
    event = side.record_event()
    (current(0) if right else stream(0)).wait_event(event)
    return sent


@program("events")
def an_event_that_was_never_recorded_holds_up_nothing(right: bool) -> Tensor:
    sent, side = _sent_beside()
    event = torch.Event(device(0))
    if right:
        event.record(side)
    event.wait(current(0))
    return sent


@program("events")
def a_wait_sees_the_last_record_before_it(right: bool) -> Tensor:
    side = stream(0)
    event = side.record_event()
    if not right:
        current(0).wait_event(event)
    with side:
        sent = send(0)
    event.record(side)
    if right:
        current(0).wait_event(event)
    sent.record_stream(current(0))
    return sent


@program("events")
def an_event_keeps_what_it_held_when_it_was_waited_for(right: bool) -> Tensor:
    side, event = stream(0), torch.Event(device(0))
    with side:
        sent = send(0)
    event.record(side if right else current(0))
    current(0).wait_event(event)
    event.record(side)
    sent.record_stream(current(0))
    return sent


@program("events")
def waiting_is_transitive(right: bool) -> Tensor:
    sent, side = _sent_beside()
    between = stream(0)
    if right:
        between.wait_stream(side)
    current(0).wait_stream(between)
    return sent


@program("stream-calls")
def an_event_of_one_device_holds_up_another(right: bool) -> Tensor:
    sent, side = _sent_beside()
    far = stream(1)
    far.wait_event((side if right else stream(0)).record_event())
    current(0).wait_stream(far)
    return sent


@program("events")
def the_host_waits_for_an_event(right: bool) -> Tensor:
    sent, side = _sent_beside()
    (side if right else stream(0)).record_event().synchronize()
    return sent


@program("events")
def an_event_that_is_seen_to_have_happened_has(right: bool) -> Tensor:
    sent, side = _sent_beside()
    event = side.record_event()
    while right and not event.query():
        pass
    return sent


@program("stream-calls")
def the_host_waits_for_a_stream(right: bool) -> Tensor:
    sent, side = _sent_beside()
    (side if right else stream(0)).synchronize()
    return sent


@program("synchronize")
def the_host_waits_for_a_device(right: bool) -> Tensor:
    sent, _ = _sent_beside()
    torch.accelerator.synchronize(device(0 if right else 1))
    return sent


@program("default-stream")
def default_streams_of_two_devices_are_two(right: bool) -> Tensor:
    sent, far = send(0), stream(0)
    far.wait_stream(current(0 if right else 1))
    with far:
        result = sent * 1
    sent.record_stream(far)
    far.synchronize()
    return result


@program("streams")
def new_streams_do_not_wait_for_the_default_stream(right: bool) -> Tensor:
    sent, side = send(0), stream(0)
    with side if not right else current(0):
        result = sent * 1
    sent.record_stream(side)
    side.synchronize()
    return result


@program("wait_stream")
def a_stream_waits_for_its_argument_not_the_other_way_round(right: bool) -> Tensor:
    sent, side = _sent_beside()
    if right:
        current(0).wait_stream(side)
    else:
        side.wait_stream(current(0))
    return sent


@program("wait_stream")
def a_wait_holds_for_what_was_queued_before_it(right: bool) -> Tensor:
    side = stream(0)
    if not right:
        current(0).wait_stream(side)
    with side:
        sent = send(0)
    if right:
        current(0).wait_stream(side)
    sent.record_stream(current(0))
    return sent


@program("streams")
def a_block_brings_back_the_stream_around_it(right: bool) -> Tensor:
    one, other = stream(0), stream(0)
    with one:
        with other:
            pass
        sent = send(0)
    current(0).wait_stream(one if right else other)
    sent.record_stream(current(0))
    return sent
