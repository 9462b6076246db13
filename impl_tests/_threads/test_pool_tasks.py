"""impl._threads.pool: the state at the moment when the caller receives an outcome."""

import threading
import weakref
from functools import partial

import pytest
import torch

from impl._device import CPU
from impl._threads import pool
from impl._threads.locals import can_isolate_locals
from impl._threads.state import call_in, thread_states


class Value:
    """An object with weak references."""


@pytest.fixture
def outcomes(monkeypatch):
    """Whether a weak reference is dead, at each end of a function. Set ``outcomes.reference``."""

    class Outcomes(list):
        reference = staticmethod(lambda: None)

    found, set_done = Outcomes(), pool.Future.set_done

    def check(future):
        found.append(found.reference() is None)
        set_done(future)

    monkeypatch.setattr(pool.Future, "set_done", check)
    return found


def test_the_argument_of_a_function_is_freed_before_its_outcome_is_set(outcomes):
    argument = Value()
    outcomes.reference = weakref.ref(argument)
    future = pool.start(partial(id, argument))
    del argument
    future.wait()
    assert outcomes == [True]


@pytest.mark.skipif(not can_isolate_locals(), reason="not-run: this Python isolates no locals")
def test_thread_local_values_are_freed_before_the_outcome_is_set(outcomes):
    local = threading.local()

    def set_value():
        local.value = Value()
        outcomes.reference = weakref.ref(local.value)

    pool.start(set_value).wait()
    assert outcomes == [True]


def test_the_caller_waits_for_the_end_of_the_thread_to_join():
    future = pool.Future(int, None)
    allowed = threading.Event()
    future.thread_to_join = threading.Thread(target=allowed.wait)
    future.thread_to_join.start()
    threading.Timer(0.1, allowed.set).start()
    future.set_done()
    future.wait()
    assert not future.thread_to_join.is_alive()


def test_a_worker_that_runs_one_function_only_is_the_thread_to_join(monkeypatch):
    monkeypatch.setattr(pool, "SINGLE_USE_THREADS", True)
    future = pool.start(threading.current_thread)
    assert future.wait() is future.thread_to_join


def test_a_pool_that_is_closed_after_a_fork_has_an_open_lock():
    old = pool._Pool()
    old._lock.acquire()  # As another thread of the parent process may have done.
    old.close_after_fork()
    assert not old._lock.locked()


def run_on(device):
    """Run a function in a worker as a replica on ``device``. Return the thread."""
    (state,) = thread_states([device])
    run = partial(state.context.run, call_in, state, threading.current_thread, (), {})
    return pool.start(run).wait()


@pytest.mark.parametrize(("num_threads", "is_reused"), [(1, True), (2, False)])
def test_a_worker_that_may_have_openmp_threads_is_not_reused(num_threads, is_reused):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        first = run_on(CPU)
        assert (run_on(CPU) is first) == is_reused
    finally:
        torch.set_num_threads(before)


def test_a_worker_that_ran_a_replica_on_a_device_is_reused(topology):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = run_on(topology.devices[0])
        assert run_on(topology.devices[0]) is first
    finally:
        torch.set_num_threads(before)
