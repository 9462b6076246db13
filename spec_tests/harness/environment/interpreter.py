"""The Python that runs, and its lock: a free-threaded one has none, unless something asks for it.

An extension that does not say that it can do without the lock brings it back for the whole
process when it is imported, with no more than a warning. A run that began without it ends there.
"""

import platform
import sys
import sysconfig

import pytest

__all__ = ["check_lock", "has_lock", "is_free_threaded", "name"]


def is_free_threaded() -> bool:
    """Tell whether this Python can run without its lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def has_lock() -> bool:
    """Tell whether one thread at a time runs Python now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def name() -> str:
    """The version, and on a free-threaded Python whether the lock is on."""
    if not is_free_threaded():
        return platform.python_version()
    return f"{platform.python_version()} free-threaded, lock {'on' if has_lock() else 'off'}"


def check_lock(*, was_off: bool) -> None:
    """Fail if the lock, which ``was_off``, is on."""
    if was_off and has_lock():
        pytest.fail("the lock of this free-threaded Python is on: something imported asked for it")
