"""Folders that pytest does not collect by default, and a fixture for several folders."""

import pytest

#: Folders whose tests need packages that only ``tox -e consumers`` installs. Its commands pass the
#: folder to pytest by name, so that pytest collects it.
collect_ignore = ["consumers", "models"]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line for each folder that is not collected."""
    return [f"not collected: impl_tests/{name} (run tox -e consumers)" for name in collect_ignore]


@pytest.fixture
def can_isolate_locals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make impl assume that it can isolate thread-local values, and that coverage is off."""
    # The names are strings because a mutation run loads this file before it selects a changed
    # impl. An import of impl here would load the unchanged one.
    monkeypatch.setattr("impl._threads.state.can_isolate_locals", lambda: True)
    monkeypatch.setattr("impl._threads.state._has_own_trace_function", lambda: False)
