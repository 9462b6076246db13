"""Runs the simulator's race detector around every test: a race fails the test.

With ``--late-copies`` copies are delayed, too, so that an early read gets NaN.
"""

from collections.abc import Generator, Sequence

import pytest
import torch

from spec_tests import simulator

__all__ = ["pytest_runtest_call"]

#: The greatest number of races that a failure prints.
_SHOWN = 5


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passing test if its accesses to device memory race."""
    are_failures = _are_failures(item.config)
    late = item.config.getoption("late_copies") if _is_simulated() else None
    if not are_failures and late is None:
        return (yield)
    with simulator.races(late_copies=late) as found:
        result = yield
    if found and are_failures:
        pytest.fail(_text(found), pytrace=False)
    return result


def _are_failures(config: pytest.Config) -> bool:
    option = config.getoption("races")
    if _is_simulated():
        return option is not False
    if option:
        raise pytest.UsageError("--races: only the simulated accelerator detects races")
    return False


def _is_simulated() -> bool:
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "sim"


def _text(found: Sequence[simulator.Race]) -> str:
    shown = [f"{race}" for race in found[:_SHOWN]]
    left = len(found) - len(shown)
    return "\n".join([*shown, f"and {left} more"] if left else shown)
