"""Isolation of the ``threading.local`` values of the running thread.

CPython before 3.13 stores one entry per ``threading.local`` in the thread's own dictionary, which
``PyThreadState_GetDict`` of the public C API returns. The entry owns the values of this thread.
Since 3.13 that dictionary is empty, so entries can only be counted, by :func:`count_locals`.
Other interpreters cannot even count them.
"""

import ctypes
import gc
import math
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import getweakrefcount


def can_isolate_locals() -> bool:
    """Return whether :func:`isolate_locals` and :func:`clear_locals` work in this interpreter."""
    return _Entry is not None


@contextmanager
def isolate_locals() -> Iterator[Callable[[], None]]:
    """Start a ``with`` block with no thread-local values, as a new thread does.

    Values set inside the block are released when it ends, and the earlier values are restored.

    Yields:
        A faster equivalent of :func:`clear_locals`.
    """
    entries = _thread_dict()
    saved = entries.copy()
    foreign = {key: saved.pop(key) for key in _foreign_keys(saved)}
    try:
        entries.clear()
        entries.update(foreign)
        yield partial(_clear, entries)
    finally:
        try:
            _clear(entries)
        finally:
            # A single call: an interrupt between two calls could lose entries.
            entries.update(saved)
            _remove_dead_entries(entries, saved)


def clear_locals() -> None:
    """Release all thread-local values of the running thread, as its end would."""
    _clear(_thread_dict())


def count_locals() -> float:
    """Return a number that grows with each ``threading.local`` that this thread has a value in.

    Returns:
        A count with an arbitrary offset, or NaN, which is unequal to itself, if unknown.
    """
    return _count()


def _foreign_keys(entries: dict[Any, Any]) -> list[Any]:
    # C extensions may also store entries in the dictionary.
    return [key for key, entry in entries.items() if type(entry) is not _Entry]


def _clear(entries: dict[Any, Any]) -> None:
    # Iterate over a copy, which is made atomically: another thread that frees a `threading.local`
    # removes this thread's entry at any time.
    for key, entry in entries.copy().items():
        if type(entry) is _Entry:
            entries.pop(key, None)


def _remove_dead_entries(entries: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Remove the entries of ``saved`` whose ``threading.local`` was freed inside the block.

    A ``threading.local`` refers weakly to its entries. The key of an entry is the object's
    address, so the next object at that address would find a stale entry.
    """
    if 0 in map(getweakrefcount, saved.values()):
        for key, entry in saved.items():
            if not getweakrefcount(entry):
                entries.pop(key, None)


def _load_c_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of Python's C API, or one that returns None if there is no such API."""
    try:
        return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
    except AttributeError:  # Not CPython.
        return lambda *_: None


# The dictionary is a borrowed reference, so it is declared as an address: ctypes would release an
# object that a C function returns.
_dict_address = _load_c_function("PyThreadState_GetDict", ctypes.c_void_p)
_object_at = _load_c_function("Py_NewRef", ctypes.py_object, ctypes.c_void_p)


def _thread_dict() -> dict[Any, Any]:
    """Return the running thread's own dictionary."""
    address = _dict_address()
    return {} if address is None else _object_at(address)


def _find_entry_type() -> type | None:
    before = _thread_dict().copy()
    local = threading.local()
    local.value = True
    new = [entry for key, entry in _thread_dict().items() if key not in before]
    return type(new[0]) if new else None


def _count_entries() -> float:
    return sum(type(entry) is _Entry for entry in _thread_dict().copy().values())


class _ThreadKey(threading.local):
    """The key of the running thread in every ``threading.local``."""

    def __init__(self) -> None:
        # The key is read from a new object that no other thread uses. A shared object holds the
        # keys of all its threads, and reading it would briefly add references to them.
        local = threading.local()
        local.value = True
        self.key = _find_key(local)


def _find_key(local: threading.local) -> object:
    # A `threading.local` has one dictionary from the threads' keys to their values.
    for found in gc.get_referents(local):
        if type(found) is dict:
            for key, values in found.copy().items():
                if values is local.__dict__:
                    return key
    return None


def _count_references() -> float:
    # Each object with a value of this thread refers to the thread's key.
    return sys.getrefcount(_thread_key.key)


def _detects_new_local(count: Callable[[], float]) -> bool:
    before = count()
    local = threading.local()
    local.value = True
    return count() > before


def _unknown_count() -> float:
    return math.nan


_Entry = _find_entry_type()
_thread_key = _ThreadKey()
# On free-threaded Python a thread that looks for its key stops all other threads, which has hung.
# Nothing needs to be counted there, since each worker runs one function only.
_IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
_COUNTERS = () if _IS_FREE_THREADED else (_count_entries, _count_references)
_count = next(filter(_detects_new_local, _COUNTERS), _unknown_count)
