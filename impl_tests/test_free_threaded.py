"""impl on a free-threaded Python: ``free_threaded.py``, and the interpreter lock."""

import os
import subprocess
import sys

import pytest

from impl_tests.free_threaded import prepare_environment
from spec_tests.machine import process_state
from spec_tests.machine.devices import not_run
from spec_tests.machine.processes import run_program


def test_a_python_with_the_gil_is_refused(tmp_path):
    if process_state.is_free_threaded():
        not_run("this Python is free-threaded")
    with pytest.raises(subprocess.CalledProcessError):
        prepare_environment(sys.executable, tmp_path)
    assert not any(tmp_path.iterdir())


#: A program that imports all packages of a test run and prints whether the GIL is enabled.
IMPORTS = """
import sys
import impl, impl.distributed
import hypothesis, numpy, pytest
from spec_tests import cuda_stand_ins, simulator
simulator.enable(2)
cuda_stand_ins.enable()
print(sys._is_gil_enabled())
"""


@pytest.fixture
def without_gil():
    """Skip the test unless Python is free-threaded and PYTHON_GIL does not enable the GIL."""
    if not process_state.is_free_threaded() or os.environ.get("PYTHON_GIL") == "1":
        not_run("needs a free-threaded Python: tox -e free-threaded")


@pytest.mark.usefixtures("without_gil")
def test_gil_is_disabled_in_this_run(topology):
    assert not process_state.is_gil_enabled()


@pytest.mark.usefixtures("without_gil")
def test_no_import_enables_the_gil():
    completed = run_program(IMPORTS)
    assert completed.stdout == "False\n", completed.stderr
