"""With `follow_threads` the race detector finds threads that use one tensor without order."""

import _thread
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from spec_tests import simulator

pytestmark = pytest.mark.usefixtures("sim")
#: Programs whose threads are ordered if their argument ``correct`` is True, and are not otherwise.
PROGRAMS = []


def thread_program(program):
    """Add a program to ``PROGRAMS``."""
    PROGRAMS.append(program)
    return program


def zeros():
    return torch.zeros(4, device="sim:0")


def run_together(*functions):
    """Run each function in its own thread; wait for all threads."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until(condition):
    """Wait in a loop, which orders nothing, until ``condition()`` is true."""
    while not condition():
        time.sleep(0.001)


def _add_with(first, second):
    """Add to one tensor in two threads, each inside its own context manager."""
    x = zeros()

    def add(guard):
        with guard:
            x.add_(1)

    run_together(lambda: add(first), lambda: add(second))


@thread_program
def a_lock_orders_two_writes(correct):
    lock = threading.Lock()
    _add_with(lock, lock if correct else threading.Lock())


@thread_program
def a_reentrant_lock_orders_two_writes(correct):
    lock = threading.RLock()
    _add_with(lock, lock if correct else threading.RLock())


def _read_after(tell, wait, correct):
    """Write in one thread and read in another, which waits first if ``correct``."""
    x = zeros()

    def write():
        x.add_(1)
        tell()

    def read():
        if correct:
            wait()
        x.clone()

    run_together(write, read)


@thread_program
def an_event_orders_a_read_after_a_write(correct):
    event = threading.Event()
    _read_after(event.set, event.wait, correct)


@thread_program
def a_simple_queue_orders_its_items(correct):
    items = queue.SimpleQueue()
    _read_after(lambda: items.put(None), items.get, correct)


@thread_program
def a_new_thread_is_ordered_after_its_start(correct):
    x = zeros()
    thread = threading.Thread(target=x.add_, args=[1])
    # `start` waits for the new thread. By chance, the lock of this wait orders the threads, too.
    thread._started.wait = lambda: wait_until(thread._started.is_set)
    if correct:
        x.mul_(2)
    thread.start()
    if not correct:
        x.mul_(2)
    thread.join()


@thread_program
def a_join_orders_what_follows(correct):
    x = zeros()
    thread = threading.Thread(target=x.add_, args=[1])
    thread.start()
    if correct:
        thread.join()
    x.tolist()
    thread.join()


@thread_program
def a_future_orders_its_result(correct):
    x = zeros()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(x.add_, 1)
        if correct:
            future.result()
        x.tolist()


@thread_program
def an_event_of_a_stream_does_not_order_threads(correct):
    side, handed = torch.Stream(device="sim:0"), queue.Queue()
    values = []

    def write():
        with side:
            x = zeros().add_(1)
            side.synchronize()
        values.append(x)
        handed.put(x)

    def read():
        if correct:
            handed.get()
        wait_until(lambda: values)
        torch.accelerator.current_stream(values[0].device).wait_stream(side)
        values[0].record_stream(torch.accelerator.current_stream(values[0].device))
        values[0].clone()

    run_together(write, read)


@thread_program
def backward_is_ordered_with_its_caller(correct):
    leaf = zeros().requires_grad_()
    loss = (leaf * 2).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    if correct:
        thread.join()
    else:
        wait_until(lambda: leaf.grad is not None)
    leaf.grad.add_(1)
    thread.join()


@thread_program
def two_backward_passes_may_add_to_one_gradient(correct):
    leaf = zeros().requires_grad_()
    others = [] if correct else [lambda: leaf.data.add_(1)]
    run_together(*[lambda: (leaf * 2).sum().backward()] * 2, *others)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_detector_finds_threads_without_order(program):
    with simulator.follow_threads(), simulator.races() as found:
        program(False)
    assert any(race.between_threads for race in found)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_detector_finds_no_race_of_ordered_threads(program):
    with simulator.follow_threads(), simulator.races() as found:
        program(True)
    assert [str(race) for race in found] == []


def test_threads_that_threading_has_not_started_race_with_no_thread():
    done = []
    with simulator.follow_threads(), simulator.races() as found:
        x = zeros()
        _thread.start_new_thread(lambda: done.append(x.add_(1)), ())
        wait_until(lambda: done)
        x.add_(1)
    assert found == []


def test_an_item_of_a_queue_carries_the_waits_of_its_thread():
    side = torch.Stream(device="sim:0")

    def write():
        with side:
            x = zeros()
        side.synchronize()
        items.put(x)

    def read():
        x = items.get()
        x.record_stream(torch.accelerator.current_stream("sim:0"))
        x.add_(1)

    with simulator.follow_threads(), simulator.races() as found:
        items = queue.SimpleQueue()  # inside the block, so that it orders threads
        run_together(write, read)
    assert found == []


@pytest.mark.parametrize("program", PROGRAMS[:1], ids=lambda program: program.__name__)
def test_threads_are_not_followed_outside_of_the_block(program):
    with simulator.follow_threads():
        pass
    with simulator.races() as found:
        program(False)
    assert found == []
