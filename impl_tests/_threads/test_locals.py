"""impl._threads.locals: isolation of thread-local values, and interpreters without it."""

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

#: The module. The package's attribute of the same name is the function.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: Enough objects for a new one to reuse the address of a freed one.
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
    """An interpreter that can only count thread-local values, and a new worker pool.

    CPython 3.13 behaves so; earlier versions are patched.
    """
    kind = thread_locals._Entry

    def count():
        return sum(type(entry) is kind for entry in thread_locals._thread_dict().values())

    if kind is not None:  # Otherwise this interpreter can only count.
        monkeypatch.setattr(thread_locals, "_Entry", None)
        monkeypatch.setattr(thread_locals, "_count", count)
    pool = thread_pool._Pool()
    monkeypatch.setattr(thread_pool, "_pool", pool)
    yield
    pool.close()


@pytest.fixture
def without_counting(counting, monkeypatch):
    """An interpreter that can neither isolate nor count thread-local values."""
    monkeypatch.setattr(thread_locals, "_count", thread_locals._unknown_count)


def test_cpython_before_3_13_can_isolate_locals():
    expected = sys.implementation.name == "cpython" and sys.version_info < (3, 13)
    assert thread_locals.can_isolate_locals() == expected
    kind = thread_locals._find_entry_type()
    assert kind is thread_locals._Entry
    assert (kind is not None) == expected


def test_entries_of_extensions_are_no_thread_locals():
    found = []

    def find():
        thread_locals._thread_dict()["of an extension"] = 1
        found.append(thread_locals._find_entry_type())

    thread = threading.Thread(target=find)
    thread.start()
    thread.join()
    assert found == [thread_locals._Entry]


@pytest.mark.usefixtures("isolation")
def test_clear_locals_releases_the_values_of_its_thread_only(local):
    found = []

    def set_and_clear():
        local.value = Value()
        thread_locals.clear_locals()
        found.append(hasattr(local, "value"))

    thread = threading.Thread(target=set_and_clear)
    thread.start()
    thread.join()
    assert found == [False]
    assert hasattr(local, "value")


@pytest.mark.parametrize("dead", [[], ["one"], ["one", "other"]], ids=str)
def test_entries_of_freed_objects_are_removed(dead):
    kept = {name: Value() for name in ("one", "other")}
    alive = [weakref.ref(entry) for name, entry in kept.items() if name not in dead]
    entries = {**kept, "new": Value()}
    thread_locals._remove_dead_entries(entries, kept)
    assert [*entries] == [name for name in ("one", "other", "new") if name not in dead]
    assert all(each() for each in alive)


@pytest.mark.usefixtures("isolation")
def test_block_hides_earlier_values_and_restores_them(local):
    before = local.value
    with thread_locals.isolate_locals():
        assert not hasattr(local, "value")
    assert local.value is before


@pytest.mark.usefixtures("isolation")
def test_values_set_in_a_block_are_released_at_its_end(local):
    with thread_locals.isolate_locals():
        local.value = Value()
        reference = weakref.ref(local.value)
    assert reference() is None


def test_failing_block_restores_earlier_values(local):
    before = local.value
    with pytest.raises(KeyboardInterrupt), thread_locals.isolate_locals():
        raise KeyboardInterrupt
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
def test_context_value_clears_the_values_of_the_block(local):
    with thread_locals.isolate_locals() as clear_locals:
        local.value = Value()
        clear_locals()
        assert not hasattr(local, "value")
    assert hasattr(local, "value")


@pytest.mark.usefixtures("isolation")
def test_objects_freed_in_a_block_leave_no_entries():
    objects = [threading.local() for _ in range(MANY)]
    for each in objects:
        each.value = Value()
    references = [weakref.ref(each.value) for each in objects]
    count = len(thread_locals._thread_dict())
    with thread_locals.isolate_locals():
        del each, objects
        assert not any(reference() for reference in references)
    assert len(thread_locals._thread_dict()) == count - MANY
    assert not any(hasattr(threading.local(), "value") for _ in range(MANY))


def test_entries_of_extensions_are_unchanged():
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


def test_missing_c_api_function_returns_none(monkeypatch):
    monkeypatch.delattr(ctypes, "pythonapi")
    assert thread_locals._load_c_function("PyThreadState_GetDict", ctypes.c_void_p)() is None


def test_thread_without_a_dictionary_has_no_entries(monkeypatch):
    monkeypatch.setattr(thread_locals, "_dict_address", lambda: None)
    assert thread_locals._thread_dict() == {}
    assert thread_locals._find_entry_type() is None


@pytest.mark.usefixtures("without_counting")
def test_worker_ends_after_its_function_if_locals_cannot_be_counted():
    thread = thread_pool.start(threading.current_thread).wait()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.usefixtures("counting")
def test_worker_with_new_locals_ends_if_they_cannot_be_cleared():
    local = threading.local()

    def set_value():
        local.value = True
        return threading.current_thread()

    thread = thread_pool.start(set_value).wait()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.usefixtures("counting")
def test_worker_without_new_locals_is_reused_if_locals_can_be_counted():
    first = thread_pool.start(threading.get_ident).wait()
    assert [thread_pool.start(threading.get_ident).wait() for _ in range(5)] == [first] * 5


def test_count_grows_with_each_object_that_has_a_value():
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


def test_counter_that_does_not_grow_is_rejected():
    assert not thread_locals._detects_new_local(lambda: 1)
    assert not thread_locals._detects_new_local(thread_locals._unknown_count)


def test_thread_key_is_the_key_in_every_object():
    local = threading.local()
    local.value = True
    key = thread_locals._find_key(local)
    assert key is not None
    # Before CPython 3.13 each object has a key of its own, and the thread key is not used.
    assert (thread_locals._ThreadKey().key is key) == (not thread_locals.can_isolate_locals())


@pytest.mark.usefixtures("counting")
def test_caller_runs_no_module_if_locals_cannot_be_isolated():
    assert not thread_state.is_fully_transferable()
    found = parallel_apply._run_in_threads([threading.get_ident] * 3)
    assert threading.get_ident() not in found


@pytest.mark.parametrize("interpreter", ["counting", "without_counting"])
def test_modules_find_no_values_if_locals_cannot_be_isolated(local, request, interpreter):
    request.getfixturevalue(interpreter)

    def set_value():
        found = getattr(local, "value", None)
        local.value = found
        return found

    assert [parallel_apply._run_in_threads([set_value] * 3) for _ in range(3)] == [[None] * 3] * 3
