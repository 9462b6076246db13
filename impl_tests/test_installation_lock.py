"""impl._installation: what is in place is looked at and changed by one thread at a time."""

import threading

import pytest

from impl import _installation


@pytest.mark.parametrize("call", [_installation.install, _installation.uninstall])
def test_what_is_in_place_is_changed_under_a_lock(monkeypatch, call):
    entered = []

    class Lock:
        def __enter__(self):
            entered.append(threading.current_thread())

        def __exit__(self, *_):
            entered.append(None)

    for name in "_replacements", "_taken":
        monkeypatch.setattr(_installation, name, lambda *_: entered[1:])
    monkeypatch.setattr(_installation, "_lock", Lock())
    monkeypatch.setattr(_installation, "_changes", [])
    call()
    assert entered == [threading.current_thread(), None]
