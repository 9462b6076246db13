"""impl._compat.gc_pause: blocks that keep Python's collector away may overlap."""

import gc
import os
import threading

import pytest

from impl._compat import gc_pause
from impl._compat.gc_pause import use_paused_collector


@pytest.fixture(params=[True, False], ids="enabled={}".format)
def enabled(request):
    """Whether the collector is on when the first block begins; on again after the test."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_the_last_of_overlapping_blocks_restores_what_the_first_found(enabled):
    first, second = use_paused_collector(), use_paused_collector()
    seen = []
    for change in (first.__enter__, second.__enter__):
        change()
        seen.append(gc.isenabled())
    for block in (first, second):
        block.__exit__(None, None, None)
        seen.append(gc.isenabled())
    assert seen == [False, False, False, enabled]


def test_a_block_that_raises_ends(enabled):
    with pytest.raises(LookupError), use_paused_collector():
        raise LookupError
    assert gc.isenabled() == enabled


@pytest.fixture
def pauses():
    """Blocks that nobody else has begun."""
    return gc_pause._Pauses()


def elsewhere(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_forked_child_forgets_the_blocks_of_threads_that_it_has_not(enabled, pauses):
    elsewhere(pauses.begin)
    assert not gc.isenabled()
    pauses.leave_alone()
    assert gc.isenabled() == enabled


def test_a_forked_child_ends_the_block_that_its_thread_is_in(enabled, pauses):
    elsewhere(pauses.begin)
    pauses.begin()
    pauses.leave_alone()
    assert not gc.isenabled()
    pauses.end()
    assert gc.isenabled() == enabled


def test_a_fork_outside_of_blocks_leaves_the_collector_as_it_is(pauses):
    with use_paused_collector():
        pauses.leave_alone()
        assert not gc.isenabled()


@pytest.mark.usefixtures("enabled")
def test_a_fork_after_a_block_leaves_the_collector_as_it_is(pauses):
    pauses.begin()
    pauses.end()
    gc.disable()
    pauses.leave_alone()
    assert not gc.isenabled()


def test_a_forked_child_waits_for_no_thread_that_it_has_not(pauses):
    pauses._lock.acquire()
    pauses.leave_alone()
    assert not pauses._lock.locked()


@pytest.mark.usefixtures("enabled")
def test_the_collector_is_asked_and_switched_under_the_lock(pauses, monkeypatch):
    locked = {}

    def note(name, answer):
        monkeypatch.setattr(
            gc, name, lambda: locked.update({name: pauses._lock.locked()}) or answer
        )

    for name, answer in (("isenabled", True), ("disable", None), ("enable", None)):
        note(name, answer)
    pauses.begin()
    pauses.end()
    assert locked == {"isenabled": True, "disable": True, "enable": True}
    assert not pauses._lock.locked()


@pytest.fixture
def unminded():
    """As before the first block, and again after the test."""
    gc_pause._mind_forks.cache_clear()
    yield
    gc_pause._mind_forks.cache_clear()


@pytest.mark.usefixtures("unminded")
def test_forks_are_minded_once_from_the_first_block_on(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: asked.append(hooks))
    for _ in range(2):
        with use_paused_collector():
            pass
    assert asked == [{"after_in_child": gc_pause._pauses.leave_alone}]


@pytest.mark.usefixtures("unminded")
def test_where_there_are_no_forks_none_is_minded(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    with use_paused_collector():
        assert not gc.isenabled()
