"""Isolation of the ``threading.local`` values of the running thread.

CPython before 3.13 stores one entry per ``threading.local`` in the thread's own dictionary, which
``PyThreadState_GetDict`` of the public C API returns. The entry owns the values of this thread.
Since 3.13 that dictionary has no such entries, so the values cannot be isolated, but
:func:`count_locals` can count them. Other interpreters may not even allow counting.
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

#: Whether each thread runs a single function, and the caller waits for the thread's end. True on
#: free-threaded Python. There, an object that one thread creates and another one releases is freed
#: only when the first thread runs again or ends, so idle threads would keep tensors alive. PyTorch
#: 2.12 crashes if a thread frees tensors after the caller has continued.
SINGLE_USE_THREADS = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def can_isolate_locals() -> bool:
    """Return whether :func:`isolate_locals` and :func:`clear_locals` work in this interpreter."""
    return _Entry is not None


@contextmanager
def isolate_locals() -> Iterator[Callable[[], None]]:
    """Return a context manager that hides this thread's ``threading.local`` values.

    The value of the ``with`` statement is a function that does the same as :func:`clear_locals`,
    but faster. At the end of the block, values that were set inside are released, and the earlier
    values are restored.
    """
    entries = _thread_dict()
    saved = entries.copy()
    # Keep the entries of C extensions, which may also use this dictionary.
    foreign_keys = [key for key, entry in saved.items() if type(entry) is not _Entry]
    foreign = {key: saved.pop(key) for key in foreign_keys}
    try:
        entries.clear()
        entries.update(foreign)
        yield partial(_clear, entries)
    finally:
        try:
            _clear(entries)
        finally:
            # Restore all entries by a single call: an interrupt between two calls would lose some.
            entries.update(saved)
            _remove_dead_entries(entries, saved)


def clear_locals() -> None:
    """Release all thread-local values of the running thread, as the end of the thread would."""
    _clear(_thread_dict())


def count_locals() -> float:
    """Return how many ``threading.local`` objects have values in this thread, plus a constant.

    If this interpreter cannot count, return NaN, which is unequal to itself.
    """
    return _count()


def _clear(entries: dict[Any, Any]) -> None:
    # Iterate over a copy, which is made atomically: when another thread frees a `threading.local`,
    # it removes the entry from this thread's dictionary.
    for key, entry in entries.copy().items():
        if type(entry) is _Entry:
            entries.pop(key, None)


def _remove_dead_entries(entries: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Remove the entries of ``saved`` whose ``threading.local`` has been freed since the copy.

    A ``threading.local`` has a weak reference to each of its entries, so an entry without a weak
    reference is dead. Its key is the address of the freed ``threading.local``, so the next
    ``threading.local`` at that address would find the dead entry.
    """
    if 0 in map(getweakrefcount, saved.values()):
        for key, entry in saved.items():
            if not getweakrefcount(entry):
                entries.pop(key, None)


def _load_c_function(name: str, result_type: Any, *arg_types: Any) -> Callable[..., Any]:
    """Return a function of Python's C API.

    On interpreters without this API, return a function that always returns None.
    """
    try:
        return ctypes.PYFUNCTYPE(result_type, *arg_types)((name, ctypes.pythonapi))
    except AttributeError:  # Not CPython.
        return lambda *_: None


# The C function returns a borrowed reference. Declare it as an address: if it were declared as an
# object, ctypes would release a reference that it does not own.
_dict_address = _load_c_function("PyThreadState_GetDict", ctypes.c_void_p)
_object_at = _load_c_function("Py_NewRef", ctypes.py_object, ctypes.c_void_p)


def _thread_dict() -> dict[Any, Any]:
    """Return the dictionary of ``PyThreadState_GetDict``, or an empty one without CPython."""
    address = _dict_address()
    return {} if address is None else _object_at(address)


def _find_entry_type() -> type | None:
    """Return the type of a thread's entry for a ``threading.local``; None without such entries."""
    before = _thread_dict().copy()
    _local = threading.local()  # This thread gets an entry at once.
    new = [entry for key, entry in _thread_dict().items() if key not in before]
    return type(new[0]) if new else None


def _count_entries() -> float:
    return sum(type(entry) is _Entry for entry in _thread_dict().copy().values())


class _ThreadKey(threading.local):
    """The key by which every ``threading.local`` finds the values of the running thread."""

    def __init__(self) -> None:
        # Use a new object: its dictionary holds only this thread's key. `_find_key` copies the
        # dictionary. The copy of a shared object's dictionary would refer to the keys of all
        # threads, and so disturb `_count_references` in those threads.
        local = threading.local()
        self.key = _find_key(local)


def _find_key(local: threading.local) -> object:
    # A `threading.local` has one dictionary, from the key of each thread to the thread's values.
    for found in gc.get_referents(local):
        if type(found) is dict:
            for key, values in found.copy().items():
                if values is local.__dict__:
                    return key
    return None


def _count_references() -> float:
    # Each `threading.local` with a value of this thread refers to the key of this thread.
    return sys.getrefcount(_thread_key.key)


def _detects_new_local(counter: Callable[[], float]) -> bool:
    """Return whether the result of ``counter`` grows with a new ``threading.local`` value."""
    before = counter()
    _local = threading.local()
    return counter() > before


def _unknown_count() -> float:
    return math.nan


_Entry = _find_entry_type()
_thread_key = _ThreadKey()
# On free-threaded Python thread-local values are not counted: counting stops all other threads,
# and this has caused hangs. The count is not needed there: a worker runs one function only.
_COUNTERS = () if SINGLE_USE_THREADS else (_count_entries, _count_references)
_count = next(filter(_detects_new_local, _COUNTERS), _unknown_count)
