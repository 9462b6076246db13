"""The Python that runs, and its global interpreter lock (GIL).

A free-threaded Python enables the GIL for the whole process when it imports an extension that
does not declare support for free threading, and only warns. A run that began without the GIL ends
there.
"""

import platform
import sys
import sysconfig

import pytest

__all__ = ["check_lock", "has_lock", "is_free_threaded", "name"]


def is_free_threaded() -> bool:
    """Whether this Python can run without the GIL."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def has_lock() -> bool:
    """Whether the GIL is enabled now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def name() -> str:
    """Return the version, and for a free-threaded Python the state of the GIL."""
    if not is_free_threaded():
        return platform.python_version()
    return f"{platform.python_version()} free-threaded, lock {'on' if has_lock() else 'off'}"


def check_lock(*, was_off: bool) -> None:
    """Fail if the GIL ``was_off`` and is now enabled."""
    if was_off and has_lock():
        pytest.fail("the lock of this free-threaded Python is on: something imported asked for it")
