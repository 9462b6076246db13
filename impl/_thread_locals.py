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

#: Whether each thread runs a single function, and the caller waits for the thread's end. True on
#: free-threaded Python. There, an object that one thread creates and another one releases is freed
#: only when the first thread runs again or ends, so idle threads would keep tensors alive. PyTorch
#: 2.12 crashes if a thread frees tensors after the caller has continued.
SINGLE_USE_THREADS = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def count_locals() -> int:
    """Return how many ``threading.local`` objects have values in this thread, plus a constant.

    With ``SINGLE_USE_THREADS``, where counting has caused hangs, the result is 0.
    """
    if SINGLE_USE_THREADS:
        return 0
    if sys.version_info >= (3, 13):
        # Each `threading.local` with a value of this thread refers to the key of this thread.
        return sys.getrefcount(_thread_key.key)
    return len(_object_at(_dict_address()))


# The C function returns a borrowed reference. Declare it as an address: if it were declared as an
# object, ctypes would release a reference that it does not own.
_dict_address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_GetDict", ctypes.pythonapi))
_object_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("Py_NewRef", ctypes.pythonapi))


class _ThreadKey(threading.local):
    """The key by which every ``threading.local`` finds the values of the running thread."""

    def __init__(self) -> None:
        # Use a new object: its dictionary holds only this thread's key. `_find_key` copies the
        # dictionary. The copy of a shared object's dictionary would refer to the keys of all
        # threads, and so disturb `count_locals` in those threads.
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
