"""impl._threads.pool: the threads that run functions."""

import threading
import weakref
from functools import partial

from impl._threads import pool


class Argument:
    """An object that weak references can refer to."""


def test_a_worker_is_a_daemon_thread_with_a_name():
    thread = pool.start(threading.current_thread).wait()
    assert (thread.name, thread.daemon) == ("parallel_apply", True)


def test_a_worker_keeps_no_reference_to_a_function_that_has_ended():
    argument = Argument()
    reference = weakref.ref(argument)
    future = pool.start(partial(id, argument))
    del argument
    future.wait()
    assert reference() is None


def test_a_worker_that_runs_one_function_only_has_ended_when_the_caller_continues(monkeypatch):
    monkeypatch.setattr(pool, "SINGLE_USE_THREADS", True)
    threads = [pool.start(threading.current_thread).wait() for _ in range(20)]
    assert not any(map(threading.Thread.is_alive, threads))


def test_one_exit_handler_is_registered_for_all_workers(monkeypatch):
    registered = []
    monkeypatch.setattr(pool.atexit, "register", registered.append)
    pool._register_exit_handler.cache_clear()
    for _ in range(2):
        pool._register_exit_handler()
    assert len(registered) == 1


def test_a_reset_after_a_fork_replaces_the_pool(monkeypatch):
    old = pool._Pool()
    monkeypatch.setattr(pool, "_pool", old)
    pool._reset_after_fork()
    assert pool._pool is not old
    assert old.add_idle(None) is False
