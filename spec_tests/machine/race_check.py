"""Runs the simulator's race detector around every test: a race fails the test.

``--late-copies`` delays copies until the host or another stream waits for them.
"""

from collections.abc import Generator, Sequence

import pytest
import torch

from spec_tests import simulator
from spec_tests.failure import Fact, Failure, end_test

#: The largest number of races that a failure message shows.
_MAX_RACES = 5


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passing test if its accesses to device memory race."""
    late, ignores_races = map(item.config.getoption, ("late_copies", "no_races"))
    if not _is_simulated() or (ignores_races and late is None):
        return (yield)
    with simulator.races(late_copies=late) as found:
        result = yield
    if found and not ignores_races:
        end_test(Failure("race", (Fact("memory", "race"),), _race_text(found)))
    return result


def _is_simulated() -> bool:
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "sim"


def _race_text(races: Sequence[simulator.Race]) -> str:
    shown = [f"{race}" for race in races[:_MAX_RACES]]
    left = len(races) - len(shown)
    return "\n".join([*shown, f"and {left} more"] if left else shown)
