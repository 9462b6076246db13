"""Events, waits for streams and devices, work of another thread, and backward passes."""

import torch
from torch import Tensor

from .program import copy_to, current_stream, device, new_stream, race_program, run_in_thread


def _copy_on_side_stream() -> tuple[Tensor, torch.Stream]:
    side = new_stream(0)
    with side:
        copied = copy_to(0)
    copied.record_stream(current_stream(0))
    return copied, side


@race_program("events")
def event_captures_work_enqueued_before_the_recording(correct: bool) -> Tensor:
    side, event = new_stream(0), torch.Event(device(0))
    if not correct:
        event.record(side)
    with side:
        copied = copy_to(0)
    if correct:
        event.record(side)
    current_stream(0).wait_event(event)
    copied.record_stream(current_stream(0))
    return copied


@race_program("events")
def recording_an_event_again_does_not_change_earlier_waits(correct: bool) -> Tensor:
    side, event = new_stream(0), torch.Event(device(0))
    with side:
        copied = copy_to(0)
    event.record(side if correct else current_stream(0))
    current_stream(0).wait_event(event)
    event.record(side)
    copied.record_stream(current_stream(0))
    return copied


@race_program("events")
def successful_event_query_counts_as_wait(correct: bool) -> Tensor:
    copied, side = _copy_on_side_stream()
    event = side.record_event()
    while correct and not event.query():
        pass
    return copied


@race_program("stream-calls")
def successful_stream_query_counts_as_wait(correct: bool) -> Tensor:
    copied, side = _copy_on_side_stream()
    while correct and not side.query():
        pass
    return copied


@race_program("synchronize")
def host_waits_for_device(correct: bool) -> Tensor:
    copied, _ = _copy_on_side_stream()
    torch.accelerator.synchronize(device(0 if correct else 1))
    return copied


@race_program("backward", late_copies=False)
def gradient_is_ready_on_stream_that_called_backward(correct: bool) -> Tensor:
    leaf, side = torch.zeros(4, device=device(0), requires_grad=True), new_stream(0)
    weights = copy_to(0)
    side.wait_stream(current_stream(0))
    weights.record_stream(side)
    with side:
        (gradient,) = torch.autograd.grad((leaf * weights).sum(), leaf)
    if correct:
        current_stream(0).wait_stream(side)
    gradient.record_stream(current_stream(0))
    return gradient


@race_program("streams")
def host_wait_in_one_thread_counts_for_all_threads(correct: bool) -> Tensor:
    side, results = new_stream(0), []

    def work() -> None:
        with side:
            results.append(copy_to(0))
        if correct:
            side.synchronize()

    run_in_thread(work)
    results[0].record_stream(current_stream(0))
    return results[0]
