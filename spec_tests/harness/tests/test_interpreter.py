"""The interpreter lock in the version of Python, and imports that enable it."""

import pytest

from spec_tests.harness.environment import interpreter


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
