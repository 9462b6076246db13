"""The number of ``threading.local`` values of the running thread.

CPython before 3.13 stores one entry per ``threading.local`` in the thread's own dictionary, which
``PyThreadState_GetDict`` of the public C API returns. Since 3.13 that dictionary has no such
entries, but each ``threading.local`` refers to a key of the thread. Other interpreters may not
allow counting.
"""

import ctypes
import gc
import math
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

#: Whether each thread runs a single function, and the caller waits for the thread's end. True on
#: free-threaded Python. There, an object that one thread creates and another one releases is freed
#: only when the first thread runs again or ends, so idle threads would keep tensors alive. PyTorch
#: 2.12 crashes if a thread frees tensors after the caller has continued.
SINGLE_USE_THREADS = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def count_locals() -> float:
    """Return how many ``threading.local`` objects have values in this thread, plus a constant.

    If this interpreter cannot count, return NaN, which is unequal to itself.
    """
    return _count()


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
