"""tox -e free-threaded: what it says where it cannot run, and what it runs."""

import sys
import sysconfig

import pytest

from impl_tests import free_threaded
from spec_tests.harness.environment import interpreter


def test_what_to_do_is_said_where_no_python_is_named():
    said = free_threaded.refusal(None)
    assert "FREE_THREADED_PYTHON" in said
    assert "--disable-gil" in said


def test_a_python_that_is_not_there_is_named(tmp_path):
    assert f"{tmp_path}/python does not run" in free_threaded.refusal(f"{tmp_path}/python")


def test_a_program_that_is_no_python_is_named():
    assert "/bin/true does not run" in free_threaded.refusal("/bin/true")


def test_only_a_python_without_lock_is_taken():
    said = free_threaded.refusal(sys.executable)
    assert bool(said) == (not interpreter.is_free_threaded())
    assert not said or "with its lock" in said


@pytest.mark.parametrize(("lacks", "is_refused"), [(["_ssl", "zlib"], True), ([], False)])
def test_a_python_that_lacks_modules_is_refused(monkeypatch, lacks, is_refused):
    about = {"version": [3, 13, 15], "free": True, "lacks": lacks}
    monkeypatch.setattr(free_threaded, "_about", lambda _: about)
    said = free_threaded.refusal("python3.13t")
    assert ("built without _ssl, zlib" in said) == is_refused
    assert bool(said) == is_refused


def test_the_interpreter_is_asked():
    about = free_threaded._about(sys.executable)
    assert about["version"] == [*sys.version_info[:3]]
    assert about["free"] == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_all_that_the_tests_need_is_installed():
    needs = " ".join(free_threaded._needs())
    assert all(name in needs for name in ("pytest-xdist", "scikit-learn", "hypothesis", "jinja2"))
