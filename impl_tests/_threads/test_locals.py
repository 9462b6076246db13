"""impl._threads.locals: what is hidden and dropped, and where nothing can be."""

import ctypes
import importlib
import sys
import sysconfig
import threading
import weakref

import pytest

from impl._threads import locals as thread_locals
from impl._threads import pool as thread_pool
from impl._threads import state as thread_state
from spec_tests.harness.environment.topology import not_run

#: The module, not the function that the package names alike.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: Objects that are made in the hope that one stands where another one stood.
MANY = 200


class Witness:
    """Something whose end can be watched."""


@pytest.fixture
def local():
    """One that holds a witness in this thread."""
    local = threading.local()
    local.held = Witness()
    return local


@pytest.fixture
def shown():
    """An interpreter that shows what a thread holds; what others can do is tried by `counting`."""
    if not thread_locals.can_be_fresh():
        not_run("since CPython 3.13 nobody can hide what a thread has put into threading.local")


@pytest.fixture
def counting(monkeypatch):
    """An interpreter that can only count, as CPython 3.13, and a pool of threads in it."""
    kind = thread_locals._Entry

    def count():
        return sum(type(entry) is kind for entry in thread_locals._entries().values())

    if kind is not None:  # Else this one is such an interpreter.
        monkeypatch.setattr(thread_locals, "_Entry", None)
        monkeypatch.setattr(thread_locals, "_count", count)
    pool = thread_pool._Pool()
    monkeypatch.setattr(thread_pool, "_pool", pool)
    yield
    pool.close()


@pytest.fixture
def blind(counting, monkeypatch):
    """An interpreter that tells nothing of any ``threading.local``."""
    monkeypatch.setattr(thread_locals, "_count", thread_locals._not_told)


def test_cpython_shows_what_a_thread_holds_before_3_13():
    expected = sys.implementation.name == "cpython" and sys.version_info < (3, 13)
    assert thread_locals.can_be_fresh() == expected
    kind = thread_locals._type_of_entries()
    assert kind is thread_locals._Entry
    assert (kind is not None) == expected


def test_entries_of_others_are_none_of_threading_local():
    found = []

    def ask():
        thread_locals._entries()["of an extension"] = 1
        found.append(thread_locals._type_of_entries())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [thread_locals._Entry]


@pytest.mark.usefixtures("shown")
def test_all_that_a_thread_holds_is_dropped(local):
    found = []

    def hold_and_drop():
        local.held = Witness()
        thread_locals.drop_locals()
        found.append(hasattr(local, "held"))

    thread = threading.Thread(target=hold_and_drop)
    thread.start()
    thread.join()
    assert found == [False]
    assert hasattr(local, "held")


@pytest.mark.parametrize("dead", [[], ["one"], ["one", "other"]], ids=str)
def test_entries_whose_objects_have_ended_are_forgotten(dead):
    kept = {name: Witness() for name in ("one", "other")}
    alive = [weakref.ref(entry) for name, entry in kept.items() if name not in dead]
    entries = {**kept, "new": Witness()}
    thread_locals._forget_the_dead(entries, kept)
    assert [*entries] == [name for name in ("one", "other", "new") if name not in dead]
    assert all(each() for each in alive)


@pytest.mark.usefixtures("shown")
def test_a_block_hides_what_was_there_and_brings_it_back(local):
    before = local.held
    with thread_locals.use_fresh_locals():
        assert not hasattr(local, "held")
    assert local.held is before


@pytest.mark.usefixtures("shown")
def test_what_a_block_leaves_goes_with_it(local):
    with thread_locals.use_fresh_locals():
        local.held = Witness()
        witness = weakref.ref(local.held)
    assert witness() is None


def test_a_block_that_fails_brings_all_back(local):
    before = local.held
    with pytest.raises(KeyboardInterrupt), thread_locals.use_fresh_locals():
        raise KeyboardInterrupt
    assert local.held is before


def test_all_is_brought_back_where_dropping_is_interrupted(local, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    before = local.held
    monkeypatch.setattr(thread_locals, "_drop", interrupt)
    with pytest.raises(KeyboardInterrupt), thread_locals.use_fresh_locals():
        pass
    assert local.held is before


@pytest.mark.usefixtures("shown")
def test_the_value_of_a_block_drops_what_is_there_by_then(local):
    with thread_locals.use_fresh_locals() as drop_locals:
        local.held = Witness()
        drop_locals()
        assert not hasattr(local, "held")
    assert hasattr(local, "held")


@pytest.mark.usefixtures("shown")
def test_what_ends_inside_a_block_is_not_found_by_what_comes_after_it():
    objects = [threading.local() for _ in range(MANY)]
    for each in objects:
        each.held = Witness()
    witnesses = [weakref.ref(each.held) for each in objects]
    count = len(thread_locals._entries())
    with thread_locals.use_fresh_locals():
        del each, objects
        assert not any(witness() for witness in witnesses)
    assert len(thread_locals._entries()) == count - MANY
    assert not any(hasattr(threading.local(), "held") for _ in range(MANY))


def test_entries_of_others_are_left_alone():
    entries = thread_locals._entries()
    entries["of an extension"] = 1
    try:
        with thread_locals.use_fresh_locals():
            assert entries["of an extension"] == 1
            entries["of an extension"] = 2
            thread_locals.drop_locals()
        assert entries["of an extension"] == 2
    finally:
        del entries["of an extension"]


def test_asking_leaves_the_count_of_references_as_it_was():
    entries = thread_locals._entries()
    before = sys.getrefcount(entries)
    for _ in range(100):
        assert thread_locals._entries() is entries
    assert sys.getrefcount(entries) == before


def test_other_interpreters_have_no_such_functions(monkeypatch):
    monkeypatch.delattr(ctypes, "pythonapi")
    assert thread_locals._function("PyThreadState_GetDict", ctypes.c_void_p)() is None


def test_there_is_nothing_where_a_thread_has_no_dictionary(monkeypatch):
    monkeypatch.setattr(thread_locals, "_address", lambda: None)
    assert thread_locals._entries() == {}
    assert thread_locals._type_of_entries() is None


@pytest.mark.usefixtures("blind")
def test_threads_end_with_their_work_where_nothing_can_be_dropped():
    thread = thread_pool.start(threading.current_thread).wait()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.usefixtures("counting")
def test_a_thread_that_holds_something_ends_where_that_cannot_be_dropped():
    local = threading.local()

    def put():
        local.held = True
        return threading.current_thread()

    thread = thread_pool.start(put).wait()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.usefixtures("counting")
def test_a_thread_that_holds_nothing_is_kept_where_that_can_be_told():
    first = thread_pool.start(threading.get_ident).wait()
    assert [thread_pool.start(threading.get_ident).wait() for _ in range(5)] == [first] * 5


def test_the_count_grows_with_each_object_that_holds_something():
    if thread_locals._count is thread_locals._not_told:
        not_run("a free-threaded Python does not tell what a thread holds without stopping all")
    before, local = thread_locals.count_locals(), threading.local()
    local.held = True
    assert thread_locals.count_locals() > before
    del local
    assert thread_locals.count_locals() == before


def test_cpython_with_its_lock_tells_what_a_thread_holds():
    cannot = sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED")
    assert (thread_locals._count is thread_locals._not_told) == bool(cannot)
    assert thread_locals._counts(thread_locals._count) == (not cannot)
    assert thread_locals._count_references() > 0


def test_a_way_to_count_that_does_not_work_is_noticed():
    assert not thread_locals._counts(lambda: 1)
    assert not thread_locals._counts(thread_locals._not_told)


def test_the_probe_knows_the_key_of_its_own_thread():
    local = threading.local()
    local.held = True
    key = thread_locals._key_of(local)
    assert key is not None
    # Since CPython 3.13 it is the thread's in every object; before, nobody asks for it.
    assert (thread_locals._Probe().key is key) == (not thread_locals.can_be_fresh())


@pytest.mark.usefixtures("counting")
def test_the_caller_runs_none_of_several_where_nothing_can_be_hidden():
    assert not thread_state.travels_whole()
    found = parallel_apply._outcomes([threading.get_ident] * 3)
    assert threading.get_ident() not in found


@pytest.mark.parametrize("interpreter", ["counting", "blind"])
def test_several_find_nothing_where_nothing_can_be_hidden(local, request, interpreter):
    request.getfixturevalue(interpreter)

    def put():
        found = getattr(local, "held", None)
        local.held = found
        return found

    assert [parallel_apply._outcomes([put] * 3) for _ in range(3)] == [[None] * 3] * 3
