"""impl on a Python without lock: nothing that it or the suite imports brings the lock back."""

import os
import subprocess
import sys

import pytest

from spec_tests.harness.environment import interpreter
from spec_tests.harness.environment.topology import not_run

#: All that the whole of a run imports, in an interpreter of its own.
IMPORTS = """
import sys
import impl, impl.distributed
import hypothesis, numpy, pytest, sklearn.datasets
from spec_tests import cuda_stand_ins, simulator
simulator.enable(2)
cuda_stand_ins.enable()
print(sys._is_gil_enabled())
"""


@pytest.fixture
def without_lock():
    """A Python that can do without its lock, and is not told to have it."""
    if not interpreter.is_free_threaded() or os.environ.get("PYTHON_GIL") == "1":
        not_run("needs a Python without lock: tox -e free-threaded")


@pytest.mark.usefixtures("without_lock")
def test_the_lock_is_off_in_this_run(topology):
    assert not interpreter.has_lock()


@pytest.mark.usefixtures("without_lock")
def test_no_import_brings_the_lock_back():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_the_header_names_the_interpreter(monkeypatch):
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: True)
    monkeypatch.setattr(interpreter, "has_lock", lambda: False)
    assert interpreter.name().endswith(" free-threaded, lock off")
    monkeypatch.setattr(interpreter, "has_lock", lambda: True)
    assert interpreter.name().endswith(" free-threaded, lock on")
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    assert "lock" not in interpreter.name()


def test_a_lock_that_comes_back_is_a_failure(monkeypatch):
    monkeypatch.setattr(interpreter, "has_lock", lambda: True)
    interpreter.check_lock(was_off=False)
    with pytest.raises(pytest.fail.Exception, match="lock of this free-threaded Python is on"):
        interpreter.check_lock(was_off=True)
