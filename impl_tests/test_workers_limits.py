"""impl._workers: how many threads are kept, and what the process is asked for."""

import atexit
import os
import threading

import pytest

from impl import _workers

PATIENCE = 20


@pytest.fixture
def watched(monkeypatch):
    """What the process is asked to call; the next thread asks it again in earnest."""
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **_: asked.append("at a fork"))
    monkeypatch.setattr(atexit, "register", lambda _: asked.append("at its end"))
    _workers._watch_process.cache_clear()
    yield asked
    _workers._watch_process.cache_clear()


def test_the_process_is_watched_once(watched):
    pool = _workers._Pool()
    barrier = threading.Barrier(3, timeout=PATIENCE)
    for pending in [pool.start(barrier.wait) for _ in range(3)]:
        pending.wait()
    pool.close()
    assert watched == ["at a fork", "at its end"]


def test_where_no_process_forks_its_end_alone_is_watched(watched, monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    pool = _workers._Pool()
    pool.start(int).wait()
    pool.close()
    assert watched == ["at its end"]


def test_so_many_threads_are_kept():
    assert _workers.MAX_IDLE == 64


def test_an_abandoned_pool_keeps_no_thread():
    pool = _workers._Pool()

    def abandon():
        pool.abandon()
        return threading.current_thread()

    thread = pool.start(abandon).wait()
    thread.join(PATIENCE)
    assert not thread.is_alive()
