"""The number of ``threading.local`` values of the running thread.

CPython before 3.13 stores one entry per ``threading.local`` in the thread's own dictionary,
which ``PyThreadState_GetDict`` of the public C API returns. Since 3.13 that dictionary has no
such entries, but each ``threading.local`` refers to a key of the thread.
"""

import ctypes
import gc
import sys
import sysconfig
import threading
from collections.abc import Callable
from functools import partial

#: Whether each thread runs a single function, and the caller waits for the thread's end. True on
#: free-threaded Python. There, an object that one thread creates and another one releases is freed
#: only when the first thread runs again or ends, so idle threads would keep tensors alive. PyTorch
#: 2.12 crashes if a thread frees tensors after the caller has continued.
SINGLE_USE_THREADS = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def locals_counter() -> Callable[[], int]:
    """Return a function that counts the ``threading.local`` objects with values in this thread.

    Its result is larger by a constant. With ``SINGLE_USE_THREADS``, where counting has caused
    hangs, it is 0. Drop the function before the thread ends, because it may refer to the values.
    """
    if SINGLE_USE_THREADS:
        return int
    if sys.version_info >= (3, 13):
        # Each `threading.local` with a value of this thread refers to the key of this thread.
        return partial(sys.getrefcount, _thread_key.key)
    count: Callable[[], int] = _object_at(_dict_address()).__len__
    return count


# The C function returns a borrowed reference. Declare it as an address: if it were declared as an
# object, ctypes would release a reference that it does not own.
_dict_address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_GetDict", ctypes.pythonapi))
_object_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("Py_NewRef", ctypes.pythonapi))


class _ThreadKey(threading.local):
    """The key by which every ``threading.local`` finds the values of the running thread."""

    def __init__(self) -> None:
        # Use a new object: its dictionary holds only this thread's key. `_find_key` copies the
        # dictionary. The copy of a shared object's dictionary would refer to the keys of all
        # threads, and so disturb `locals_counter` in those threads.
        local = threading.local()
        self.key = _find_key(local)


def _find_key(local: threading.local) -> object:
    # A `threading.local` has one dictionary, from the key of each thread to the thread's values.
    for referent in gc.get_referents(local):
        if type(referent) is dict:
            for key, values in referent.copy().items():
                if values is local.__dict__:
                    return key
    return None


_thread_key = _ThreadKey()
