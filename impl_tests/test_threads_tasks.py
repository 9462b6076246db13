"""impl._threads: the state of a worker when the caller receives an outcome."""

import threading
import weakref
from functools import partial

import pytest
import torch

from impl import _threads
from impl._devices import CPU
from impl._thread_state import SINGLE_USE_THREADS, call_in, thread_states

REUSES_WORKERS = pytest.mark.skipif(
    SINGLE_USE_THREADS, reason="not-run: on this Python a worker runs one function"
)


class Value:
    """An object that weak references can refer to."""


@pytest.fixture
def outcomes(monkeypatch):
    """A list of bools: whether ``outcomes.reference`` was dead when each function ended.

    The test sets ``outcomes.reference`` to a weak reference.
    """

    class Outcomes(list):
        reference = staticmethod(lambda: None)

    found, set_done = Outcomes(), _threads.PendingCall.set_done

    def check(pending):
        found.append(found.reference() is None)
        set_done(pending)

    monkeypatch.setattr(_threads.PendingCall, "set_done", check)
    monkeypatch.setattr(_threads, "_pool", _threads._Pool())  # A new pool has no worker yet.
    yield found
    _threads._pool.close()


@pytest.mark.skipif(SINGLE_USE_THREADS, reason="not-run: this Python frees such objects later")
def test_the_argument_of_a_function_is_freed_before_its_outcome_is_set(outcomes):
    argument, is_deleted = Value(), threading.Event()
    outcomes.reference = weakref.ref(argument)
    pending = _threads.start(partial(lambda argument: is_deleted.wait(), argument))
    del argument
    is_deleted.set()
    pending.wait()
    assert outcomes == [True]


def test_the_caller_waits_for_the_end_of_the_thread_to_join():
    pending = _threads.PendingCall(int)
    allowed = threading.Event()
    pending.thread_to_join = threading.Thread(target=allowed.wait)
    pending.thread_to_join.start()
    threading.Timer(0.1, allowed.set).start()
    pending.set_done()
    pending.wait()
    assert not pending.thread_to_join.is_alive()


def test_a_worker_that_runs_one_function_only_is_the_thread_to_join(monkeypatch):
    monkeypatch.setattr(_threads, "SINGLE_USE_THREADS", True)
    monkeypatch.setattr(_threads, "_pool", _threads._Pool())
    pending = _threads.start(threading.current_thread)
    assert pending.wait() is pending.thread_to_join


def run_in_thread(function):
    """Call ``function`` in another thread. Return the result, or None after ten seconds."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(10)
    return results[0] if results else None


def test_a_pool_that_is_closed_after_a_fork_has_a_free_lock():
    old = _threads._Pool()
    run_in_thread(old._lock.acquire)  # Another thread may hold the lock at the fork.
    old.close_after_fork()
    assert run_in_thread(lambda: old.add_idle(None)) is False


class InterruptedList(list):
    """A list whose methods first call a function, as a signal handler may do."""

    function = staticmethod(int)

    def pop(self):
        self.function()
        return super().pop()

    def append(self, value):
        self.function()
        super().append(value)


def test_a_signal_handler_may_start_a_function_while_a_worker_is_popped(monkeypatch):
    tested = _threads._Pool()
    tested._idle = InterruptedList([None])
    found = []

    def handle():
        tested._idle.function = int
        found.append(tested._pop_idle())

    tested._idle.function = handle
    # The handler pops the only idle worker, so the outer call finds none.
    assert run_in_thread(lambda: [tested._pop_idle()]) == [None]
    assert found == [None]


def test_a_signal_handler_may_add_a_worker_while_one_is_added():
    tested = _threads._Pool()
    tested._idle = InterruptedList()

    def handle():
        tested._idle.function = int
        tested.add_idle("inner")

    tested._idle.function = handle
    assert run_in_thread(lambda: tested.add_idle("outer")) is True
    assert tested._idle == ["inner", "outer"]


def run_on(device):
    """Run a function in a worker as a replica on ``device``. Return the worker's thread."""
    (state,) = thread_states([device])
    run = partial(state.context.run, call_in, state, threading.current_thread, (), {})
    return _threads.start(run).wait()


@REUSES_WORKERS
@pytest.mark.parametrize(("num_threads", "is_reused"), [(1, True), (2, False)])
def test_a_worker_that_may_have_openmp_threads_is_not_reused(num_threads, is_reused):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        first = run_on(CPU)
        assert (run_on(CPU) is first) == is_reused
    finally:
        torch.set_num_threads(before)


@REUSES_WORKERS
def test_a_worker_that_ran_a_replica_on_a_device_is_reused(topology):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = run_on(topology.devices[0])
        assert run_on(topology.devices[0]) is first
    finally:
        torch.set_num_threads(before)
