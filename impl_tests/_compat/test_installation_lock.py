"""impl._compat.installation: what is in place is looked at and changed by one thread at a time."""

import threading

import pytest

from impl._compat import installation


def block():
    with installation.installed():
        pass


@pytest.mark.parametrize(
    ("call", "times"),
    [(installation.install, 1), (installation.uninstall, 1), (block, 3)],
    ids=["install", "uninstall", "installed"],
)
def test_what_is_in_place_is_looked_at_and_changed_under_a_lock(monkeypatch, call, times):
    entered = []

    class Lock:
        def __enter__(self):
            entered.append(threading.current_thread())

        def __exit__(self, *_):
            entered.append(None)

    def find(*_):
        assert entered[-1:] == [threading.current_thread()]
        return []

    for name in "_replacements", "_taken":
        monkeypatch.setattr(installation, name, find)
    monkeypatch.setattr(installation, "_lock", Lock())
    monkeypatch.setattr(installation, "_changes", [])
    call()
    assert entered == [threading.current_thread(), None] * times
