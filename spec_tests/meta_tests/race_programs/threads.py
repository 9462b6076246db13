"""Work that several threads give to the devices."""

import queue
import threading

import torch
from torch import Tensor

from .rows import current, empty, in_a_thread, program, send, stream


@program("streams")
def the_end_of_a_thread_is_not_the_end_of_its_stream_s_work(right: bool) -> Tensor:
    side, results = stream(0), []

    def work() -> None:
        with side:
            results.append(send(0))

    in_a_thread(work)
    if right:
        current(0).wait_stream(side)
    results[0].record_stream(current(0))
    return results[0]


@program("streams")
def a_thread_that_waits_for_its_stream_waits_for_all(right: bool) -> Tensor:
    side, results = stream(0), []

    def work() -> None:
        with side:
            results.append(send(0))
        if right:
            side.synchronize()

    in_a_thread(work)
    results[0].record_stream(current(0))
    return results[0]


@program("thread-streams")
def a_new_thread_begins_on_the_default_streams(right: bool) -> Tensor:
    side, results = stream(0), []
    with side:
        sent = send(0)

    def work() -> None:
        with side if right else current(0):
            results.append(empty(0).copy_(sent, non_blocking=True))
            current(0).synchronize()

    in_a_thread(work)
    sent.record_stream(current(0))
    return results[0]


@program("model")
def two_threads_on_one_stream_are_in_order(right: bool) -> Tensor:
    one, other, sent = stream(0), stream(0), []

    def fill() -> None:
        with one:
            sent.append(send(0))

    def read() -> None:
        with one if right else other:
            sent.append(empty(0).copy_(sent[0]))
            current(0).synchronize()

    in_a_thread(fill)
    in_a_thread(read)
    sent[0].record_stream(other)
    return sent[1]


@program("streams")
def a_thread_may_wait_for_an_event_of_another(right: bool) -> Tensor:
    side, sent, events = stream(0), [], []

    def fill() -> None:
        with side:
            if not right:
                events.append(side.record_event())
            sent.append(send(0))
            events.append(side.record_event())

    in_a_thread(fill)
    current(0).wait_event(events[0])
    sent[0].record_stream(current(0))
    return sent[0]


@program("stream-calls")
def what_comes_through_a_queue_is_waited_for_by_its_event(right: bool) -> Tensor:
    box: queue.Queue[tuple[Tensor, torch.Event]] = queue.Queue()
    side = stream(0)

    def produce() -> None:
        with side:
            sent = send(0)
            box.put((sent, side.record_event()))

    thread = threading.Thread(target=produce)
    thread.start()
    sent, event = box.get()
    if right:
        current(0).wait_event(event)
    thread.join()
    sent.record_stream(current(0))
    return sent
