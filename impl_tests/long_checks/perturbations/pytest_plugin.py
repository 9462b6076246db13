"""A pytest plugin that runs tests with a perturbation, and prints the clauses that notice it."""

import os
from collections.abc import Generator
from contextlib import nullcontext

import pytest

from impl_tests.long_checks.perturbations import DEVICES, PERTURBATION, UNCHANGED

#: The beginnings of the lines that are printed before a test and after its failure, and the line
#: after the last test. Clauses follow the first two.
BEGIN, FAILED, END = "begin of a test of ", "failure of a test of ", "end of the tests"
#: The clauses whose tests have failed.
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Enable the fault of the devices, after the run has found the features that they lack."""
    from spec_tests import simulator  # pytest imports the hooks of the suite first.

    function, kind = os.environ[PERTURBATION].split()
    is_fault = function == DEVICES and kind != UNCHANGED
    with simulator.fault(kind) if is_fault else nullcontext():
        result = yield
    print(f"\n{END}", flush=True)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Print the clauses of a test. Leave the test out if other tests of them have failed."""
    from spec_tests.machine import clauses

    selected = {*item.config.getoption("--clause")}
    left = selected.intersection(clauses.clauses_of_test(item)) - _failed
    if not left:
        return True
    print(f"\n{BEGIN}{' '.join(left)}", flush=True)
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the clauses that a test fails."""
    from spec_tests.machine import clauses, verdicts

    report = yield
    failed = {test.clause for test in verdicts.verdicts_of(report) if test.fails_run}
    if failed:
        # The test has noticed the perturbation also if another clause is about its facts.
        _failed.update(failed, clauses.clauses_of_test(item)[:1])
        print(f"\n{FAILED}{' '.join(_failed)}", flush=True)
    return report
