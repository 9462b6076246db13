"""Checks around every test: the state of the process, and races.

A test fails if it changes the state of the process or of its thread, if accesses to memory race,
or if the target ends the run. Most tests call the target directly; `outcome.observe` checks calls
that are compared.
"""

import signal
import sys
import unittest
import warnings
from collections.abc import Generator

import pytest

from spec_tests.failure import Fact, Failure, end_test, error_fact, noted_error
from spec_tests.machine import clauses, process_state
from spec_tests.machine.devices import race_failure
from spec_tests.machine.fixtures import topology_of
from spec_tests.machine.target import NotOffered
from spec_tests.machine.verdicts import NotRun
from spec_tests.simulator.pytest_plugin import RaceError

#: Errors that end a run or decide a verdict. The target must not raise them.
_SKIPS = (pytest.skip.Exception, unittest.SkipTest)
_ENDS_RUN = (pytest.exit.Exception, pytest.xfail.Exception, KeyboardInterrupt)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that changes the state of the process, or whose target ends the run."""
    if not clauses.clauses_of_test(pyfuncitem):
        return (yield)
    topology = topology_of(pyfuncitem.config)
    before, modules = process_state.read(topology), len(sys.modules)
    with process_state.kept_devices(topology):
        try:
            result = yield
        except (*_SKIPS, *_ENDS_RUN) as error:
            if _is_of_suite(error):
                raise
            name = type(error).__name__
            text = f"the target raises {name}: {error}"
            fact = error_fact(name, str(error))
            raise noted_error(Failure("error", (fact,), text, f"{name}: {error}")) from None
        changed = process_state.changes(before, process_state.read(topology))
    name = "warning filters"
    if len(sys.modules) > modules and {*before[name]} <= {*warnings.filters}:
        changed.pop(name, None)  # An import may add filters.
    if changed:
        facts = tuple(Fact("state", name) for name in changed)
        text = f"the call changed the {'; the '.join(changed.values())}"
        end_test(Failure("state", facts, text))
    return result


def _is_of_suite(error: BaseException) -> bool:
    """Return whether the suite has skipped the test, or the user has pressed Ctrl-C."""
    if isinstance(error, _SKIPS):
        return type(error) in (NotOffered, NotRun)
    # With another handler than Python's own, Ctrl-C does not raise it.
    is_users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return type(error) is KeyboardInterrupt and is_users


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of a clause, so that the plugin of the simulator checks it for races."""
    if clauses.clauses_of_test(item):
        item.add_marker("races")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Make a failure of the races that the plugin of the simulator has found in a test."""
    try:
        return (yield)
    except RaceError as error:
        end_test(race_failure(error.races))
