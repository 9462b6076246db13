"""impl._threads.locals and sequential: isolation and counting of thread-local values."""

import ctypes
import importlib
import sys
import sysconfig
import threading
import weakref

import pytest

from impl._threads import locals as thread_locals
from impl._threads import pool as thread_pool
from impl._threads.locals import can_isolate_locals
from impl._threads.sequential import run_sequentially
from impl_tests.samples import call_in_thread
from spec_tests.harness.environment.topology import not_run

#: The module ``impl.parallel_apply``. The attribute ``parallel_apply`` of impl is the function.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: A number of objects that is so large that some new object gets the address of a freed one.
MANY = 200


class Value:
    """An object that weak references can refer to."""


@pytest.fixture
def local():
    """A ``threading.local`` with a value in this thread."""
    local = threading.local()
    local.value = Value()
    return local


@pytest.fixture
def isolation():
    """Skip the test on interpreters that cannot isolate thread-local values."""
    if not thread_locals.can_isolate_locals():
        not_run("since CPython 3.13 thread-local values cannot be isolated")


@pytest.fixture
def counting(monkeypatch):
    """Simulate CPython 3.13, where impl can count thread-local values but not isolate them.

    Use a new worker pool.
    """
    entry_type = thread_locals._Entry

    def count():
        return sum(type(entry) is entry_type for entry in thread_locals._thread_dict().values())

    if entry_type is not None:  # On CPython 3.13 and later it is None, and nothing is patched.
        monkeypatch.setattr(thread_locals, "_Entry", None)
        monkeypatch.setattr(thread_locals, "_count", count)
    pool = thread_pool._Pool()
    monkeypatch.setattr(thread_pool, "_pool", pool)
    yield
    pool.close()


@pytest.fixture
def without_counting(counting, monkeypatch):
    """Simulate an interpreter that can neither isolate nor count thread-local values."""
    monkeypatch.setattr(thread_locals, "_count", thread_locals._unknown_count)


def test_only_cpython_before_3_13_can_isolate_locals():
    expected = sys.implementation.name == "cpython" and sys.version_info < (3, 13)
    assert thread_locals.can_isolate_locals() == expected
    entry_type = thread_locals._find_entry_type()
    assert entry_type is thread_locals._Entry
    assert (entry_type is not None) == expected


def test_find_entry_type_ignores_entries_of_extension_modules():
    def find():
        thread_locals._thread_dict()["of an extension"] = 1
        return thread_locals._find_entry_type()

    assert call_in_thread(find) is thread_locals._Entry


@pytest.mark.usefixtures("isolation")
def test_clear_locals_releases_only_the_values_of_the_calling_thread(local):
    def set_and_clear():
        local.value = Value()
        thread_locals.clear_locals()
        return hasattr(local, "value")

    assert not call_in_thread(set_and_clear)
    assert hasattr(local, "value")


@pytest.mark.parametrize("dead", [[], ["one"], ["one", "other"]], ids=str)
def test_entries_of_freed_objects_are_removed(dead):
    kept = {name: Value() for name in ("one", "other")}
    alive = [weakref.ref(entry) for name, entry in kept.items() if name not in dead]
    entries = {**kept, "new": Value()}
    thread_locals._remove_dead_entries(entries, kept)
    assert [*entries] == [name for name in ("one", "other", "new") if name not in dead]
    assert all(reference() for reference in alive)


@pytest.mark.usefixtures("isolation")
def test_isolate_locals_restores_earlier_values_and_releases_those_of_the_block(local):
    before, references = local.value, []

    def set_value_and_fail():
        assert not hasattr(local, "value")
        local.value = Value()
        references.append(weakref.ref(local.value))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), thread_locals.isolate_locals():
        set_value_and_fail()
    assert references[0]() is None
    assert local.value is before


def test_earlier_values_are_restored_if_clearing_is_interrupted(local, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    before = local.value
    monkeypatch.setattr(thread_locals, "_clear", interrupt)
    with pytest.raises(KeyboardInterrupt), thread_locals.isolate_locals():
        pass
    assert local.value is before


@pytest.mark.usefixtures("isolation")
def test_clear_locals_removes_the_values_set_in_the_block(local):
    with thread_locals.isolate_locals() as clear_locals:
        local.value = Value()
        clear_locals()
        assert not hasattr(local, "value")
    assert hasattr(local, "value")


@pytest.mark.usefixtures("isolation")
def test_objects_freed_under_isolate_locals_leave_no_entries():
    objects = [threading.local() for _ in range(MANY)]
    for local in objects:
        local.value = Value()
    references = [weakref.ref(local.value) for local in objects]
    count = len(thread_locals._thread_dict())
    with thread_locals.isolate_locals():
        del local, objects
        assert not any(reference() for reference in references)
    assert len(thread_locals._thread_dict()) == count - MANY
    assert not any(hasattr(threading.local(), "value") for _ in range(MANY))


def test_isolate_and_clear_locals_do_not_change_entries_of_extension_modules():
    entries = thread_locals._thread_dict()
    entries["of an extension"] = 1
    try:
        with thread_locals.isolate_locals():
            assert entries["of an extension"] == 1
            entries["of an extension"] = 2
            thread_locals.clear_locals()
        assert entries["of an extension"] == 2
    finally:
        del entries["of an extension"]


def test_reading_the_thread_dictionary_leaks_no_reference():
    entries = thread_locals._thread_dict()
    before = sys.getrefcount(entries)
    for _ in range(100):
        assert thread_locals._thread_dict() is entries
    assert sys.getrefcount(entries) == before


def test_load_c_function_returns_a_function_that_returns_none_without_pythonapi(monkeypatch):
    monkeypatch.delattr(ctypes, "pythonapi")
    assert thread_locals._load_c_function("PyThreadState_GetDict", ctypes.c_void_p)() is None


def test_thread_without_a_dictionary_has_no_entries(monkeypatch):
    monkeypatch.setattr(thread_locals, "_dict_address", lambda: None)
    assert thread_locals._thread_dict() == {}
    assert thread_locals._find_entry_type() is None


@pytest.mark.usefixtures("counting")
def test_worker_whose_functions_set_no_local_is_reused_if_locals_can_be_counted():
    first = thread_pool.start(threading.get_ident).wait()
    assert [thread_pool.start(threading.get_ident).wait() for _ in range(5)] == [first] * 5


def test_count_locals_counts_a_new_local_until_it_is_deleted():
    if thread_locals._count is thread_locals._unknown_count:
        not_run("a free-threaded Python cannot count locals without stopping all threads")
    before, local = thread_locals.count_locals(), threading.local()
    local.value = True
    assert thread_locals.count_locals() > before
    del local
    assert thread_locals.count_locals() == before


def test_cpython_with_the_gil_can_count_locals():
    cannot = sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED")
    assert (thread_locals._count is thread_locals._unknown_count) == bool(cannot)
    assert thread_locals._detects_new_local(thread_locals._count) == (not cannot)
    assert thread_locals._count_references() > 0


def test_a_count_that_does_not_grow_detects_no_new_local():
    assert not thread_locals._detects_new_local(lambda: 1)
    assert not thread_locals._detects_new_local(thread_locals._unknown_count)


def test_thread_key_is_the_key_of_all_objects_if_locals_cannot_be_isolated():
    local = threading.local()
    local.value = True
    key = thread_locals._find_key(local)
    assert key is not None
    # Since CPython 3.13 each thread has one key for all `threading.local` objects. Before, each
    # object had its own key.
    assert (thread_locals._ThreadKey().key is key) == (not thread_locals.can_isolate_locals())


@pytest.mark.parametrize("interpreter", ["counting", "without_counting"])
def test_modules_see_no_values_of_earlier_modules_if_locals_cannot_be_isolated(
    local, request, interpreter
):
    request.getfixturevalue(interpreter)

    def set_value():
        found = getattr(local, "value", None)
        local.value = "left"
        return found

    assert [parallel_apply._run_in_threads([set_value] * 3) for _ in range(3)] == [[None] * 3] * 3


def test_calling_thread_makes_all_calls_only_if_locals_can_be_isolated():
    outcomes = run_sequentially([threading.get_ident] * 3)
    assert ({*outcomes} == {threading.get_ident()}) == can_isolate_locals()
