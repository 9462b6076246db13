"""tox -e free-threaded: its errors for unsuitable interpreters, and its requirements."""

import sys
import sysconfig

import pytest

from impl_tests import free_threaded
from spec_tests.harness.environment import interpreter


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
