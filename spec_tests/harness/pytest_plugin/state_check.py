"""Fails a test of a target that changes the state of the process or of its thread.

Most tests call the target directly. `outcome.observe` checks calls that are compared. An error
with which the target would end the run, or decide the verdict, fails the test, too.
"""

import os
import signal
import sys
import threading
import unittest
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
import torch

from spec_tests.harness.compare import surroundings
from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.profiles import FORWARD
from spec_tests.harness.environment.target import NotOffered
from spec_tests.harness.environment.topology import NOT_RUN
from spec_tests.harness.pytest_plugin.hooks import topology_of

__all__ = ["pytest_pyfunc_call"]


class ContainedError(Exception):
    """The error of a test in place of one that would end the run or decide the verdict."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test of a clause that changes the surroundings; contain its errors.

    The profile `FORWARD` runs the tests in no-grad mode.
    """
    if not clauses.clauses_of_test(pyfuncitem):
        return (yield)
    is_forward = pyfuncitem.config.getoption("--profile") == FORWARD
    with torch.set_grad_enabled(not is_forward):
        return (yield from _checked(pyfuncitem))


def _checked(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    topology = topology_of(pyfuncitem.config)
    before, modules = surroundings.read(topology), len(sys.modules)
    with _restored():
        try:
            result = yield
        except BaseException as error:
            if _is_allowed(error):
                raise
            text = f"the test raises {type(error).__name__}: {error}"
            raise ContainedError(text).with_traceback(error.__traceback__) from None
        changed = surroundings.changes(before, surroundings.read(topology))
    if len(sys.modules) > modules:  # An import may add filters.
        changed = tuple(name for name in changed if name != "warning filters")
    if changed:
        pytest.fail(f"changed: {', '.join(changed)}", pytrace=False)
    return result


def _is_allowed(error: BaseException) -> bool:
    """Return whether an error fails the test, or is a skip of the suite or Ctrl-C of the user."""
    if isinstance(error, (pytest.skip.Exception, unittest.SkipTest)):
        return type(error) is NotOffered or str(error).startswith(NOT_RUN)
    if isinstance(error, KeyboardInterrupt):
        # Only with Python's own handler can it be Ctrl-C of the user.
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return not isinstance(error, (pytest.exit.Exception, pytest.xfail.Exception))


@contextmanager
def _restored() -> Iterator[None]:
    """Restore at the end of the block what pytest needs."""
    limit, folder = sys.getrecursionlimit(), os.getcwd()
    hooks = sys.excepthook, threading.excepthook
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        sys.excepthook, threading.excepthook = hooks
        os.chdir(folder)
