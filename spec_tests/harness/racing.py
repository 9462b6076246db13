"""Every test under the simulator's detector of races: one that it finds fails the test."""

from collections.abc import Generator, Sequence

import pytest
import torch

from spec_tests import simulator

__all__ = ["pytest_runtest_call"]

#: Past this many, a test's races are counted only.
_SHOWN = 5


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passes although accesses race in it."""
    if not _is_wanted(item.config):
        return (yield)
    with simulator.races() as found:
        result = yield
    if found:
        pytest.fail(_text(found), pytrace=False)
    return result


def _is_wanted(config: pytest.Config) -> bool:
    wanted = config.getoption("races")
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == "sim":
        return wanted is not False
    if wanted:
        raise pytest.UsageError("--races: only the simulated accelerator sees races")
    return False


def _text(found: Sequence[simulator.Race]) -> str:
    shown = [f"{race}" for race in found[:_SHOWN]]
    left = len(found) - len(shown)
    return "\n".join([*shown, f"and {left} more"] if left else shown)
