"""impl._threads: the worker threads, their reuse and end, and released objects."""

import os
import signal
import threading

import pytest
import torch

from impl import _threads
from impl_tests.samples import FunctionMode
from spec_tests.harness.concurrency.leaks import wait_until
from spec_tests.harness.environment import interpreter

#: Seconds after which a wait that should end immediately counts as a hang.
TIMEOUT = 20


@pytest.fixture
def pool():
    pool = _threads._Pool()
    yield pool
    pool.close()


@pytest.fixture
def reusing_pool(monkeypatch, pool):
    """A pool that reuses its threads, also on a free-threaded Python."""
    if interpreter.is_free_threaded():
        monkeypatch.setattr(_threads, "SINGLE_USE_THREADS", False)
        monkeypatch.setattr(_threads, "count_locals", int)
    return pool


def alive(pool):
    return [thread for thread in pool._threads if thread.is_alive()]


def all_end(threads):
    for thread in threads:
        thread.join(TIMEOUT)
    return not any(thread.is_alive() for thread in threads)


def test_second_call_reuses_an_idle_thread(pool):
    first = pool.start(threading.get_ident).wait()
    assert [pool.start(threading.get_ident).wait() for _ in range(20)] == [first] * 20


def test_number_of_idle_threads_is_limited(reusing_pool):
    barrier = threading.Barrier(_threads.MAX_IDLE + 5, timeout=TIMEOUT)
    calls = [reusing_pool.start(barrier.wait) for _ in range(barrier.parties)]
    for call in calls:
        call.wait()
    wait_until(lambda: len(alive(reusing_pool)) <= _threads.MAX_IDLE)
    assert len(reusing_pool._idle) == len(alive(reusing_pool)) == _threads.MAX_IDLE


def test_ended_threads_are_removed_when_a_new_one_starts(pool, monkeypatch):
    monkeypatch.setattr(_threads, "MAX_IDLE", 0)
    assert all_end([pool.start(threading.current_thread).wait()])
    assert pool.start(threading.current_thread).wait() is pool._threads[0]
    assert len(pool._threads) == 1


def test_single_use_thread_has_ended_when_its_caller_resumes(pool, monkeypatch):
    monkeypatch.setattr(_threads, "SINGLE_USE_THREADS", True)
    assert not any(pool.start(threading.current_thread).wait().is_alive() for _ in range(100))


@pytest.mark.parametrize("make", [FunctionMode, torch.inference_mode])
def test_thread_whose_function_leaves_a_mode_active_ends(pool, make):
    kept = []

    def enter():
        kept.append(make())
        kept[0].__enter__()
        return threading.current_thread()

    assert all_end([pool.start(enter).wait()])
    states = pool.start(
        lambda: (torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack())
    )
    assert states.wait() == (False, 0)


@pytest.fixture
def interrupted():
    """Yield an event that the first SIGINT sets. Only that signal raises KeyboardInterrupt."""
    happened = threading.Event()

    def interrupt_once(*_):
        if not happened.is_set():
            happened.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt_once)
    yield happened
    signal.signal(signal.SIGINT, before)


def test_interrupt_ends_the_wait_but_not_the_function(reusing_pool, interrupted):
    begin, release, ended = threading.Event(), threading.Event(), []

    def interrupt():
        begin.wait(TIMEOUT)
        # Repeat the signal. If one arrives just before the wait begins, Python handles it only
        # when the wait ends.
        while not interrupted.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        ended.append(release.wait(TIMEOUT))
        return threading.current_thread()

    def wait():
        begin.set()
        pending.wait()

    pending = reusing_pool.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert not ended
    release.set()
    worker = pending.wait()
    assert ended == [True]
    assert reusing_pool.start(threading.current_thread).wait() is worker


def test_after_close_idle_threads_have_ended_and_a_new_thread_runs_one_function(pool):
    calls = [pool.start(threading.current_thread) for _ in range(3)]
    threads = [call.wait() for call in calls]
    pool.close()
    assert not any(thread.is_alive() for thread in threads)
    assert all_end([pool.start(threading.current_thread).wait()])


def test_pool_works_after_the_start_of_a_thread_has_failed(pool, monkeypatch):
    pool.start(int).wait()

    def raise_error(thread):
        raise RuntimeError("can't start new thread")

    release = threading.Event()
    busy = pool.start(release.wait)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raise_error)
        with pytest.raises(RuntimeError):
            pool.start(int)
    release.set()
    assert busy.wait()
    assert os.getpid() == pool.start(os.getpid).wait()


def test_a_worker_is_a_daemon_thread_with_a_name():
    thread = _threads.start(threading.current_thread).wait()
    assert (thread.name, thread.daemon) == ("parallel_apply", True)


def test_one_exit_handler_is_registered_for_all_workers(monkeypatch):
    registered = []
    monkeypatch.setattr(_threads.atexit, "register", registered.append)
    _threads._register_exit_handler.cache_clear()
    for _ in range(2):
        _threads._register_exit_handler()
    assert len(registered) == 1


def test_a_reset_after_a_fork_replaces_the_pool(monkeypatch):
    old = _threads._Pool()
    monkeypatch.setattr(_threads, "_pool", old)
    _threads._reset_after_fork()
    assert _threads._pool is not old
    assert old.add_idle(None) is False
