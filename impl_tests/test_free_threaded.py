"""impl on a free-threaded Python: ``free_threaded.py``, and the interpreter lock."""

import os
import subprocess
import sys

import pytest

from impl_tests.free_threaded import prepare_environment
from spec_tests.machine import process_state
from spec_tests.machine.devices import not_run


def test_a_python_with_the_gil_is_refused(tmp_path):
    if process_state.is_free_threaded():
        not_run("this Python is free-threaded")
    with pytest.raises(subprocess.CalledProcessError):
        prepare_environment(sys.executable, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("topology")
def test_no_import_has_enabled_the_gil():
    if not process_state.is_free_threaded() or os.environ.get("PYTHON_GIL") == "1":
        not_run("needs a free-threaded Python: tox -e free-threaded")
    assert not process_state.is_gil_enabled()
