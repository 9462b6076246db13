"""Runs the simulator's race detector around every test: a race fails the test.

``--late-copies`` delays copies until the host or another stream waits for them.
"""

from collections.abc import Generator

import pytest

from spec_tests import simulator
from spec_tests.failure import Fact, Failure, end_test
from spec_tests.simulator.pytest_plugin import is_simulated, race_text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passing test if its accesses to device memory race."""
    late = item.config.getoption("late_copies")
    ignores_races = item.config.getoption("races") is False
    if not is_simulated() or (ignores_races and late is None):
        return (yield)
    with simulator.races(late_copies=late) as found:
        result = yield
    if found and not ignores_races:
        end_test(Failure("race", (Fact("memory", "race"),), race_text(found)))
    return result
