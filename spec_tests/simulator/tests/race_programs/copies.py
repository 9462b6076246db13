"""Copies between host and devices, and between devices."""

import torch
from torch import Tensor

from .program import (
    copy_to,
    current_stream,
    device,
    empty,
    host_tensor,
    new_stream,
    pinned_tensor,
    race_program,
)


@race_program("sync-behaviour")
def stream_waits_for_copy_from_pageable_memory(correct: bool) -> Tensor:
    side, data = new_stream(0), host_tensor()
    with side:
        copied = data.to(device(0), non_blocking=True)
    if correct:
        current_stream(0).wait_stream(side)
    copied.record_stream(current_stream(0))
    return copied


@race_program("async")
def host_waits_for_blocking_copy(correct: bool) -> Tensor:
    side, data = new_stream(0), pinned_tensor()
    with side:
        copied = data.to(device(0), non_blocking=not correct)
    copied.record_stream(current_stream(0))
    return copied


@race_program("peers")
def peer_copy_runs_on_current_stream_of_source(correct: bool) -> Tensor:
    side = new_stream(0)
    with side:
        data = copy_to(0)
    if correct:
        current_stream(0).wait_stream(side)
    data.record_stream(current_stream(0))
    return data.to(device(1))


@race_program("peers")
def current_stream_of_destination_waits_for_peer_copy(correct: bool) -> Tensor:
    data, side = copy_to(0), new_stream(1)
    with side:
        received = data.to(device(1), non_blocking=True)
    received.record_stream(current_stream(1))
    with side if correct else current_stream(1):
        result = received * 1
    side.synchronize()
    return result


@race_program("peers")
def peer_copy_waits_for_current_stream_of_destination(correct: bool) -> Tensor:
    data, received, side = copy_to(0), empty(1), new_stream(1)
    side.wait_stream(current_stream(1))
    with side:
        received.copy_(torch.zeros(4).pin_memory(), non_blocking=True)
    received.record_stream(side)
    if correct:
        current_stream(1).wait_stream(side)
    received.copy_(data)
    current_stream(1).wait_stream(side)
    return received


@race_program("sync-behaviour")
def pinned_memory_is_overwritten_after_waiting_for_copy(correct: bool) -> Tensor:
    buffer, side = pinned_tensor(), new_stream(0)
    zeros = torch.zeros(4).pin_memory().to(device(0))
    with side:
        copied = buffer.to(device(0), non_blocking=True)
    if correct:
        side.synchronize()
    buffer.copy_(zeros, non_blocking=True)
    current_stream(0).synchronize()
    current_stream(0).wait_stream(side)
    copied.record_stream(current_stream(0))
    return copied


@race_program("streams")
def item_waits_for_its_stream_only(correct: bool) -> Tensor:
    side = new_stream(0)
    with side:
        copied = copy_to(0)
    with side if correct else current_stream(0):
        copied[0].item()
    copied.record_stream(current_stream(0))
    return copied


@race_program("nonzero", late_copies=False)
def nonzero_waits_for_its_stream(correct: bool) -> Tensor:
    side = new_stream(0)
    with side:
        copied = copy_to(0)
        copied.nonzero() if correct else copied.abs()
    copied.record_stream(current_stream(0))
    return copied


@race_program("sync-behaviour")
def host_does_not_wait_for_non_blocking_copy_to_pageable_memory(correct: bool) -> Tensor:
    data, side, back = copy_to(0), new_stream(0), torch.empty(4)
    side.wait_stream(current_stream(0))
    with side:
        back.copy_(data, non_blocking=not correct)
    data.record_stream(side)
    data.zero_()
    side.synchronize()
    return back
