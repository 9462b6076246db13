"""impl._thread_state: the number of thread-local values."""

import ctypes
import importlib
import sys
import sysconfig
import threading

import pytest

from impl import _thread_state, _threads
from impl_tests.samples import call_in_thread
from spec_tests.harness.environment.topology import not_run

#: The module ``impl.parallel_apply``. The attribute ``parallel_apply`` of impl is the function.
parallel_apply = importlib.import_module("impl.parallel_apply")


@pytest.fixture
def pool(monkeypatch):
    """A new worker pool of impl."""
    pool = _threads._Pool()
    monkeypatch.setattr(_threads, "_pool", pool)
    yield pool
    pool.close()


def test_find_entry_type_ignores_entries_of_extension_modules():
    def find():
        _thread_state._thread_dict()["of an extension"] = 1
        return _thread_state._find_entry_type()

    assert call_in_thread(find) is _thread_state._Entry


def test_reading_the_thread_dictionary_leaks_no_reference():
    entries = _thread_state._thread_dict()
    before = sys.getrefcount(entries)
    for _ in range(100):
        assert _thread_state._thread_dict() is entries
    assert sys.getrefcount(entries) == before


def test_load_c_function_returns_a_function_that_returns_none_without_pythonapi(monkeypatch):
    monkeypatch.delattr(ctypes, "pythonapi")
    assert _thread_state._load_c_function("PyThreadState_GetDict", ctypes.c_void_p)() is None


def test_thread_without_a_dictionary_has_no_entries(monkeypatch):
    monkeypatch.setattr(_thread_state, "_dict_address", lambda: None)
    assert _thread_state._thread_dict() == {}
    assert _thread_state._find_entry_type() is None


def test_count_locals_counts_a_new_local_until_it_is_deleted():
    if _thread_state._count is _thread_state._unknown_count:
        not_run("a free-threaded Python cannot count locals without stopping all threads")
    before, local = _thread_state.count_locals(), threading.local()
    local.value = True
    assert _thread_state.count_locals() > before
    del local
    assert _thread_state.count_locals() == before


def test_cpython_with_the_gil_can_count_locals():
    cannot = sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED")
    assert (_thread_state._count is _thread_state._unknown_count) == bool(cannot)
    assert _thread_state._detects_new_local(_thread_state._count) == (not cannot)
    assert _thread_state._count_references() > 0


def test_a_count_that_does_not_grow_detects_no_new_local():
    assert not _thread_state._detects_new_local(lambda: 1)
    assert not _thread_state._detects_new_local(_thread_state._unknown_count)


@pytest.mark.parametrize("counted", [True, False], ids="counted={}".format)
def test_modules_see_no_values_of_earlier_modules(pool, monkeypatch, counted):
    if not counted:
        monkeypatch.setattr(_thread_state, "_count", _thread_state._unknown_count)
    local = threading.local()

    def set_value():
        found = getattr(local, "value", None)
        local.value = "left"
        return found

    calls = [set_value] * 3
    assert [parallel_apply._run_calls(calls, in_turn=False) for _ in range(3)] == [[None] * 3] * 3
    assert parallel_apply._run_calls(calls, in_turn=True) == [None] * 3
