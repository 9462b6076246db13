"""Leaves out the tests of features that a run does not use."""

import pytest

from spec_tests.machine.capabilities import device_clauses
from spec_tests.machine.clauses import clauses_of_test
from spec_tests.machine.devices import not_run


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a test as not-run if ``--without`` names its feature."""
    for name in clauses_of_test(item):
        feature = device_clauses()[name].feature
        if feature in item.config.getoption("--without"):
            not_run(f"--without {feature}")
