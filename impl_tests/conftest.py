"""What is not collected with the other tests of impl."""

import pytest

#: They test impl on packages that only their own environments have. Named on the command line,
#: as ``tox -e consumers`` and ``tox -e models`` do, they are collected.
collect_ignore = ["consumers", "models"]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say so."""
    return [f"apart: impl_tests/{name} (tox -e {name})" for name in collect_ignore]
