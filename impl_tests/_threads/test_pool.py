"""impl._threads.pool: threads that wait for work, and the hazards that they bring."""

import atexit
import gc
import os
import signal
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from impl._threads import pool as thread_pool
from impl._threads.exceptions import Failure
from impl._threads.locals import can_be_fresh
from impl_tests.samples import FunctionMode, fail_with
from spec_tests.harness.concurrency.leaks import becomes
from spec_tests.harness.environment import interpreter
from spec_tests.harness.environment.topology import not_run

#: Seconds after which something that should happen at once is taken to hang.
PATIENCE = 20


class Witness:
    """Something whose end can be watched."""


class Sleeper:
    """A worker that does not wake up."""

    rested = 0

    def rest(self):
        self.rested += 1


@pytest.fixture
def pool():
    pool = thread_pool._Pool()
    yield pool
    pool.close()


@pytest.fixture
def keeping_pool(monkeypatch, pool):
    """One that keeps its threads, on a free-threaded Python, too, where none does."""
    if interpreter.is_free_threaded():
        monkeypatch.setattr(thread_pool, "ENDS_WITH_WORK", False)
        monkeypatch.setattr(thread_pool, "count_locals", int)
    return pool


@pytest.fixture
def watched(monkeypatch):
    """What the process is asked to call; the next thread asks it again in earnest."""
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **_: asked.append("at a fork"))
    monkeypatch.setattr(atexit, "register", lambda _: asked.append("at its end"))
    thread_pool._watch_process.cache_clear()
    yield asked
    thread_pool._watch_process.cache_clear()


def alive(pool):
    return [thread for thread in pool._threads if thread.is_alive()]


def wait_for_ends(threads):
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def test_a_function_runs_in_another_thread(pool):
    assert pool.start(threading.get_ident).wait() != threading.get_ident()


def test_the_outcome_of_a_failing_function_is_a_failure(pool):
    error = SystemExit(3)
    outcome = pool.start(partial(fail_with, error)).wait()
    assert isinstance(outcome, Failure)
    assert outcome.take() is error


def test_threads_wait_for_the_next_call(pool):
    first = pool.start(threading.get_ident).wait()
    assert [pool.start(threading.get_ident).wait() for _ in range(20)] == [first] * 20


def test_functions_that_wait_for_each_other_all_run(pool):
    count = 2 * thread_pool.MAX_IDLE
    barrier = threading.Barrier(count, timeout=PATIENCE)
    arrivals = [pending.wait() for pending in [pool.start(barrier.wait) for _ in range(count)]]
    assert sorted(arrivals) == list(range(count))


def test_no_more_threads_are_kept_than_the_limit(keeping_pool):
    barrier = threading.Barrier(thread_pool.MAX_IDLE + 5, timeout=PATIENCE)
    pending = [keeping_pool.start(barrier.wait) for _ in range(barrier.parties)]
    for each in pending:
        each.wait()
    deadline = time.monotonic() + PATIENCE
    while len(alive(keeping_pool)) > thread_pool.MAX_IDLE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(keeping_pool._idle) == len(alive(keeping_pool)) == thread_pool.MAX_IDLE


def test_threads_that_have_ended_are_forgotten_when_another_begins(pool, monkeypatch):
    monkeypatch.setattr(thread_pool, "MAX_IDLE", 0)
    assert wait_for_ends([pool.start(threading.current_thread).wait()])
    assert pool.start(threading.current_thread).wait() is pool._threads[0]
    assert len(pool._threads) == 1


def test_functions_may_start_functions_at_any_depth(pool):
    def nested(depth):
        return depth and 1 + pool.start(partial(nested, depth - 1)).wait()

    assert nested(100) == 100


def test_several_threads_may_start_functions_at_the_same_time(pool):
    found = []

    def caller(number):
        pending = [pool.start(partial(divmod, number, 1 + i)) for i in range(4)]
        found.append(
            [each.wait() for each in pending] == [divmod(number, 1 + i) for i in range(4)]
        )

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(50)]
    for each in callers:
        each.start()
    assert wait_for_ends(callers)
    assert found == [True] * 50


@pytest.mark.parametrize("ending", [len, partial(lambda _: fail_with(ValueError()))])
def test_a_waiting_thread_holds_on_to_nothing(pool, ending):
    pool.start(int).wait()
    gc.collect()
    gc.disable()
    try:
        argument = [Witness()]
        witness = weakref.ref(argument[0])
        outcome = pool.start(partial(ending, argument)).wait()
        del argument, outcome
        assert witness() is None
    finally:
        gc.enable()


def test_a_thread_has_let_go_before_anyone_waits_no_more(pool, monkeypatch):
    if interpreter.is_free_threaded():
        not_run("a free-threaded Python frees what this thread has made in this thread alone")
    argument, alive = [Witness()], []
    witness = weakref.ref(argument[0])
    release = thread_pool.Pending.release

    def look_and_release(pending):
        alive.append(witness())
        release(pending)

    monkeypatch.setattr(thread_pool.Pending, "release", look_and_release)
    pending = pool.start(partial(len, argument))
    del argument
    pending.wait()
    assert alive == [None]


def test_a_result_is_the_waiters_alone(pool):
    pending = pool.start(Witness)
    result = pending.wait()
    witness = weakref.ref(result)
    del result
    assert becomes(lambda: witness() is None)


def test_a_thread_that_ends_with_its_work_has_ended_when_its_caller_goes_on(pool, monkeypatch):
    monkeypatch.setattr(thread_pool, "ENDS_WITH_WORK", True)
    assert not any(pool.start(threading.current_thread).wait().is_alive() for _ in range(100))


def test_threads_end_with_their_work_where_python_has_no_lock():
    assert interpreter.is_free_threaded() == thread_pool.ENDS_WITH_WORK


@pytest.mark.parametrize("make", [FunctionMode, torch.inference_mode])
def test_a_thread_in_which_something_is_left_ends(pool, make):
    kept = []

    def enter():
        kept.append(make())
        kept[0].__enter__()
        return threading.current_thread()

    assert wait_for_ends([pool.start(enter).wait()])
    states = pool.start(
        lambda: (torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack())
    )
    assert states.wait() == (False, 0)


@pytest.fixture
def interrupted():
    """An event that is set, and a KeyboardInterrupt raised, at the first SIGINT, not at others."""
    happened = threading.Event()

    def interrupt_once(*_):
        if not happened.is_set():
            happened.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt_once)
    yield happened
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_waiting_and_not_the_function(keeping_pool, interrupted):
    begin, release, ended = threading.Event(), threading.Event(), []

    def interrupt():
        begin.wait(PATIENCE)
        # A signal that comes just before the caller waits is seen only once the waiting ends.
        while not interrupted.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        ended.append(release.wait(PATIENCE))
        return threading.current_thread()

    def wait():
        begin.set()
        pending.wait()

    pending = keeping_pool.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert not ended
    release.set()
    worker = pending.wait()
    assert ended == [True]
    assert keeping_pool.start(threading.current_thread).wait() is worker


def test_a_closed_pool_keeps_no_thread(pool):
    pending = [pool.start(threading.current_thread) for _ in range(3)]
    threads = [each.wait() for each in pending]
    pool.close()
    assert not any(thread.is_alive() for thread in threads)
    assert wait_for_ends([pool.start(threading.current_thread).wait()])


def test_os_is_not_asked_for_more_than_it_gives(pool, monkeypatch):
    pool.start(int).wait()

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    release = threading.Event()
    busy = pool.start(release.wait)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            pool.start(int)
    release.set()
    assert busy.wait()
    assert os.getpid() == pool.start(os.getpid).wait()


def test_a_function_that_no_thread_has_begun_runs_in_the_callers():
    worker = Sleeper()
    pending = thread_pool.Pending(threading.get_ident, worker)
    pending.run_unless_begun()
    assert pending.wait() == threading.get_ident()
    assert pending.begin() is None
    assert worker.rested == 1


def test_a_function_that_another_thread_is_about_to_take_is_left_to_it():
    pending = thread_pool.Pending(threading.get_ident, Sleeper())
    # The other one has asked, and has not yet come to take the function.
    assert pending._begun.acquire(blocking=False)
    assert pending.begin() is None


def test_a_function_that_has_begun_is_left_to_its_thread(pool):
    begun, release = threading.Event(), threading.Event()

    def identify():
        begun.set()
        return release.wait(PATIENCE) and threading.get_ident()

    pending = pool.start(identify)
    assert begun.wait(PATIENCE)
    pending.run_unless_begun()
    release.set()
    assert pending.wait() not in (threading.get_ident(), False)


def test_threads_whose_work_was_taken_are_handed_the_next(keeping_pool):
    for number in range(1000):
        pending = [keeping_pool.start(partial(divmod, number, 3)) for _ in range(3)]
        for each in pending:
            each.run_unless_begun()
        assert [each.wait() for each in pending] == [divmod(number, 3)] * 3
    assert len(keeping_pool._threads) == 3


def test_a_closed_pool_ends_threads_whose_work_was_taken(pool):
    pool._closed = True
    pending = [pool.start(int) for _ in range(3)]
    threads = [*pool._threads]
    for each in pending:
        each.run_unless_begun()
    assert wait_for_ends(threads)


def test_the_process_is_watched_once(watched):
    pool = thread_pool._Pool()
    barrier = threading.Barrier(3, timeout=PATIENCE)
    for pending in [pool.start(barrier.wait) for _ in range(3)]:
        pending.wait()
    pool.close()
    assert watched == ["at a fork", "at its end"]


def test_where_no_process_forks_its_end_alone_is_watched(watched, monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    pool = thread_pool._Pool()
    pool.start(int).wait()
    pool.close()
    assert watched == ["at its end"]


def test_an_abandoned_pool_keeps_no_thread():
    pool = thread_pool._Pool()

    def abandon():
        pool.abandon()
        return threading.current_thread()

    assert wait_for_ends([pool.start(abandon).wait()])


def test_a_forked_child_has_a_pool_of_its_own(pool, monkeypatch):
    monkeypatch.setattr(thread_pool, "_pool", pool)
    lock = pool._lock
    lock.acquire()
    thread_pool._start_anew()
    assert thread_pool._pool is not pool
    assert pool._closed
    lock.release()


def test_the_threads_end_with_the_process(pool, monkeypatch):
    monkeypatch.setattr(thread_pool, "_pool", pool)
    thread_pool.start(int).wait()
    thread_pool._end()
    assert pool._closed
    assert not alive(pool)


def test_threads_are_daemons_and_have_a_name(pool):
    thread = pool.start(threading.current_thread).wait()
    assert (thread.name, thread.daemon) == ("parallel_apply", True)


def test_who_waits_for_the_outcome_waits_for_the_end_of_its_thread(pool, monkeypatch):
    monkeypatch.setattr(thread_pool, "ENDS_WITH_WORK", True)
    pending, joined = pool.start(threading.current_thread), []
    with pending._done:
        thread = pending.ending
    pending.ending = SimpleNamespace(join=lambda: joined.append(thread))
    assert pending.wait() is thread
    assert joined == [thread]
    thread.join()


def test_a_thread_whose_work_was_taken_waits_for_other_work(keeping_pool):
    worker = thread_pool._Worker(keeping_pool)
    taken = thread_pool.Pending(int, worker)
    taken.begin()
    worker.hand(taken)
    assert worker._take_turn()
    worker.hand(None)
    assert not worker._take_turn()


def test_a_thread_that_can_drop_what_it_held_is_used_again(pool):
    if not can_be_fresh():
        not_run("since CPython 3.13 nobody can drop what a thread has put into threading.local")
    local = threading.local()

    def put():
        local.held = Witness()
        return threading.current_thread()

    assert pool.start(put).wait() is pool.start(threading.current_thread).wait()
