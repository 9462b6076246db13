"""Copies between host and devices, and between devices."""

import torch
from torch import Tensor

from .rows import current, device, empty, host, pinned, program, send, stream


@program("streams")
def a_copy_beside_the_current_stream_is_waited_for(right: bool) -> Tensor:
    side = stream(0)
    with side:
        sent = send(0)
    if right:
        current(0).wait_stream(side)
    sent.record_stream(current(0))
    return sent


@program("streams")
def a_side_stream_waits_for_a_copy_on_the_current_one(right: bool) -> Tensor:
    sent, side = send(0), stream(0)
    if right:
        side.wait_stream(current(0))
    with side:
        result = sent * 1
    side.synchronize()
    return result


@program("sync-behaviour")
def what_is_sent_from_ordinary_memory_is_waited_for_too(right: bool) -> Tensor:
    side, data = stream(0), host()
    with side:
        sent = data.to(device(0), non_blocking=True)
    if right:
        current(0).wait_stream(side)
    sent.record_stream(current(0))
    return sent


@program("async")
def the_host_waits_for_a_copy_that_blocks(right: bool) -> Tensor:
    side, data = stream(0), pinned()
    with side:
        sent = data.to(device(0), non_blocking=not right)
    sent.record_stream(current(0))
    return sent


@program("streams")
def a_copy_to_the_host_is_ordered_by_its_own_stream_only(right: bool) -> Tensor:
    side, sent = stream(0), empty(0)
    side.wait_stream(current(0))
    with side:
        sent.copy_(pinned(), non_blocking=True)
    sent.record_stream(side)
    with side if right else current(0):
        return sent.to("cpu")


@program("streams")
def a_copy_within_a_device_is_waited_for(right: bool) -> Tensor:
    data, result, side = send(0), empty(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(data)
    data.record_stream(side)
    result.record_stream(side)
    if right:
        current(0).wait_stream(side)
    return result


@program("peers")
def a_peer_copy_follows_the_current_stream_of_its_source(right: bool) -> Tensor:
    side = stream(0)
    with side:
        data = send(0)
    if right:
        current(0).wait_stream(side)
    data.record_stream(current(0))
    return data.to(device(1))


@program("peers")
def the_receiver_s_current_stream_waits_for_a_peer_copy(right: bool) -> Tensor:
    data, side = send(0), stream(1)
    with side:
        received = data.to(device(1), non_blocking=True)
    received.record_stream(current(1))
    with side if right else current(1):
        result = received * 1
    side.synchronize()
    return result


@program("peers")
def a_peer_copy_waits_for_the_receiver_s_current_stream(right: bool) -> Tensor:
    data, received, side = send(0), empty(1), stream(1)
    side.wait_stream(current(1))
    with side:
        received.copy_(torch.zeros(4).pin_memory(), non_blocking=True)
    received.record_stream(side)
    if right:
        current(1).wait_stream(side)
    received.copy_(data)
    current(1).wait_stream(side)
    return received


@program("peers")
def the_source_of_a_peer_copy_is_not_overwritten_meanwhile(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    received = data.to(device(1), non_blocking=True)
    with current(0) if right else side:
        data.zero_()
    data.record_stream(side)
    return received


@program("sync-behaviour")
def pinned_memory_is_full_when_the_copy_has_been_waited_for(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        back = data.to("cpu", non_blocking=True)
    data.record_stream(side)
    if right:
        side.synchronize()
    return back.to(device(0), non_blocking=True)


@program("sync-behaviour")
def pinned_memory_is_kept_until_it_has_been_sent(right: bool) -> Tensor:
    buffer, side = pinned(), stream(0)
    zeros = torch.zeros(4).pin_memory().to(device(0))
    with side:
        sent = buffer.to(device(0), non_blocking=True)
    if right:
        side.synchronize()
    buffer.copy_(zeros, non_blocking=True)
    current(0).synchronize()
    current(0).wait_stream(side)
    sent.record_stream(current(0))
    return sent


@program("streams")
def a_number_is_read_where_it_was_made(right: bool) -> Tensor:
    side = stream(0)
    with side:
        sent = send(0)
    with side if right else current(0):
        numbers = [sent[index].item() for index in range(4)]
    sent.record_stream(current(0))
    return torch.tensor(numbers)


@program("nonzero", late=False)
def the_host_waits_for_an_operator_that_tells_it_a_size(right: bool) -> Tensor:
    side = stream(0)
    with side:
        sent = send(0)
        sent.nonzero() if right else sent.abs()
    sent.record_stream(current(0))
    return sent


@program("sync-behaviour")
def ordinary_memory_is_not_waited_for_either(right: bool) -> Tensor:
    data, side, back = send(0), stream(0), torch.empty(4)
    side.wait_stream(current(0))
    with side:
        back.copy_(data, non_blocking=not right)
    data.record_stream(side)
    data.zero_()
    side.synchronize()
    return back
