"""The version of Python, and its global interpreter lock (GIL).

If a free-threaded Python imports an extension that does not declare support for free threading, it
enables the GIL for the whole process and only warns. The suite fails the test during which this
happens.
"""

import platform
import sys
import sysconfig

from spec_tests.failure import Fact, Failure, failed


def is_free_threaded() -> bool:
    """Return whether this Python can run without the GIL."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_gil_enabled() -> bool:
    """Return whether the GIL is enabled now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def python_version() -> str:
    """Return the version, and for a free-threaded Python the state of the GIL."""
    if not is_free_threaded():
        return platform.python_version()
    return f"{platform.python_version()} free-threaded, GIL {'on' if is_gil_enabled() else 'off'}"


def check_gil(*, was_off: bool) -> None:
    """Fail the test if the GIL ``was_off`` at the start of the run and is enabled now."""
    if was_off and is_gil_enabled():
        text = "an import has enabled the GIL of this free-threaded Python"
        raise failed(Failure("state", (Fact("state", "GIL"),), text))
