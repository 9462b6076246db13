"""impl._compat.gc_pause: overlapping pauses of the garbage collector, and forks."""

import gc

import pytest

from impl._compat import gc_pause
from impl._compat.gc_pause import pause_gc
from impl_tests.samples import call_in_thread


@pytest.fixture(params=[True, False], ids="enabled={}".format)
def enabled(request):
    """Enable or disable the garbage collector; yield whether it is enabled."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_collector_state_is_restored_when_the_last_overlapping_block_ends(enabled):
    first, second = pause_gc(), pause_gc()
    seen = []
    for block in (first, second):
        block.__enter__()
        seen.append(gc.isenabled())
    for block in (first, second):
        block.__exit__(None, None, None)
        seen.append(gc.isenabled())
    assert seen == [False, False, False, enabled]


def test_pause_gc_restores_the_collector_state_after_an_error(enabled):
    with pytest.raises(LookupError), pause_gc():
        raise LookupError
    assert gc.isenabled() == enabled


@pytest.fixture
def pauses():
    """A new ``_Pauses`` object, without active pauses."""
    return gc_pause._Pauses()


def test_forked_child_ends_the_pauses_of_other_threads(enabled, pauses):
    call_in_thread(pauses.begin)
    assert not gc.isenabled()
    pauses.reset_after_fork()
    assert gc.isenabled() == enabled


def test_forked_child_keeps_the_pause_of_the_forking_thread(enabled, pauses):
    call_in_thread(pauses.begin)
    pauses.begin()
    pauses.reset_after_fork()
    assert not gc.isenabled()
    pauses.end()
    assert gc.isenabled() == enabled


def test_fork_without_active_pauses_does_not_enable_the_collector(pauses):
    with pause_gc():
        pauses.reset_after_fork()
        assert not gc.isenabled()


@pytest.mark.usefixtures("enabled")
def test_fork_after_the_end_of_a_pause_does_not_enable_the_collector(pauses):
    pauses.begin()
    pauses.end()
    gc.disable()
    pauses.reset_after_fork()
    assert not gc.isenabled()


def test_forked_child_can_pause_if_the_lock_was_held_at_the_fork(pauses):
    pauses._lock.acquire()
    pauses.reset_after_fork()
    pauses.begin()
    pauses.end()
