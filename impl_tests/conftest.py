"""Folders that are not collected by default, and fixtures for several folders."""

import pytest

#: Folders whose tests need the packages of their own tox environments. ``tox -e consumers`` and
#: ``tox -e models`` name them on the command line, so that they are collected.
collect_ignore = ["consumers", "models"]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line for each folder that is not collected."""
    return [f"not collected: impl_tests/{name} (run tox -e {name})" for name in collect_ignore]


@pytest.fixture
def isolating(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that can isolate thread-local values, without coverage's per-thread hooks.

    CPython 3.13 and later are patched to claim so.
    """
    # By name: a mutation run loads this file before it chooses the version of impl.
    monkeypatch.setattr("impl._threads.state.can_isolate_locals", lambda: True)
    monkeypatch.setattr("impl._threads.state._has_private_hooks", lambda: False)
