"""impl on a free-threaded Python: ``free_threaded.py``, and the interpreter lock."""

import os
import sys
import sysconfig

import pytest

from impl_tests import free_threaded
from spec_tests.harness.environment import interpreter
from spec_tests.harness.environment.scripts import run_program
from spec_tests.harness.environment.topology import not_run


def test_without_an_interpreter_the_error_names_the_variable_and_the_remedy():
    problem = free_threaded.find_problem(None)
    assert "FREE_THREADED_PYTHON" in problem
    assert "--disable-gil" in problem


@pytest.mark.parametrize("program", ["/missing/python", "/bin/true"])
def test_a_path_that_is_not_a_python_interpreter_is_refused(program):
    assert f"{program} does not run" in free_threaded.find_problem(program)


def test_only_free_threaded_python_is_accepted():
    problem = free_threaded.find_problem(sys.executable)
    assert bool(problem) == (not interpreter.is_free_threaded())
    assert not problem or "not free-threaded" in problem


@pytest.mark.parametrize(("missing", "is_refused"), [(["_ssl", "zlib"], True), ([], False)])
def test_a_python_without_required_modules_is_refused(monkeypatch, missing, is_refused):
    build = {"version": [3, 13, 15], "is_free_threaded": True, "missing": missing}
    monkeypatch.setattr(free_threaded, "_probe", lambda _: build)
    problem = free_threaded.find_problem("python3.13t")
    assert ("built without _ssl, zlib" in problem) == is_refused
    assert bool(problem) == is_refused


def test_the_probe_returns_the_version_and_whether_python_is_free_threaded():
    build = free_threaded._probe(sys.executable)
    assert build["version"] == [*sys.version_info[:3]]
    assert build["is_free_threaded"] == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_requirements_contain_the_packages_for_tests_and_reports():
    requirements = " ".join(free_threaded._read_requirements())
    assert all(
        name in requirements for name in ("pytest-xdist", "scikit-learn", "hypothesis", "jinja2")
    )


#: A program that imports all packages of a test run and prints whether the GIL is enabled.
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
def without_gil():
    """Skip the test unless Python is free-threaded and PYTHON_GIL does not enable the GIL."""
    if not interpreter.is_free_threaded() or os.environ.get("PYTHON_GIL") == "1":
        not_run("needs a free-threaded Python: tox -e free-threaded")


@pytest.mark.usefixtures("without_gil")
def test_gil_is_disabled_in_this_run(topology):
    assert not interpreter.is_gil_enabled()


@pytest.mark.usefixtures("without_gil")
def test_no_import_enables_the_gil():
    completed = run_program(IMPORTS)
    assert completed.stdout == "False\n", completed.stderr


def test_python_version_names_the_state_of_the_gil(monkeypatch):
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: True)
    monkeypatch.setattr(interpreter, "is_gil_enabled", lambda: False)
    assert interpreter.python_version().endswith(" free-threaded, GIL off")
    monkeypatch.setattr(interpreter, "is_gil_enabled", lambda: True)
    assert interpreter.python_version().endswith(" free-threaded, GIL on")
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    assert "GIL" not in interpreter.python_version()


def test_check_gil_fails_only_if_the_gil_was_off_before(monkeypatch):
    monkeypatch.setattr(interpreter, "is_gil_enabled", lambda: True)
    interpreter.check_gil(was_off=False)
    with pytest.raises(pytest.fail.Exception, match="has enabled the GIL"):
        interpreter.check_gil(was_off=True)
