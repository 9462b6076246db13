"""Reports errors of pytest-xdist's workers: usage errors at collection, and ended processes.

If a worker raises an error at collection, pytest-xdist shows only a failed assertion. Here a
worker with a usage error collects no tests and sends the text of the error to the controller. The
controller prints the text.

A worker that ends before it has collected tests ends the run.

A test that ends its worker fails under its clauses, or is known if a record of the register
expects this. A new worker runs the other tests.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pluggy import PluggyTeardownRaisedWarning

from spec_tests.failure import Fact, Failure
from spec_tests.machine import record, time_limit
from spec_tests.machine.judge import ENDS_PROCESS, PROCESS_ENDED

_KEY = "usage_error"
_ERROR = pytest.StashKey[str]()
#: The clauses of the tests that run, by node id: pairs from the reports of their setup.
_properties: dict[str, list[tuple[str, object]]] = {}
#: The workers that have collected tests.
_started: set[str] = set()
#: The id of the run, of which the workers know.
_run: list[str] = []


@contextmanager
def sent_to_controller(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Catch a UsageError in a worker and send it to the controller."""
    try:
        yield
    except pytest.UsageError as error:
        output = getattr(config, "workeroutput", None)
        if output is None:
            raise
        output[_KEY] = str(error)
        items.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Store that a worker has started."""
    _started.add(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Store the usage error of a worker. End the run if a worker cannot start.

    pytest-xdist would replace the worker again and again.
    """
    _run[:] = [node.workerinput["testrunuid"]]
    usage_error = getattr(node, "workeroutput", {}).get(_KEY)
    if usage_error is not None:
        node.config.stash[_ERROR] = usage_error
    elif error is not None and node.gateway.id not in _started:
        # The first error of a traceback is the cause of the others.
        reason = re.search(r"^[\w.]+: .+$", f"{error}", re.MULTILINE)
        text = f"a worker process cannot start: {reason[0] if reason else error}"
        node.config.stash[_ERROR] = text
        pytest.exit("the run ends", pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Store the properties of a test after its setup; the test may end the process."""
    if report.when == "setup":
        _properties[report.nodeid] = report.user_properties
    elif report.when == "teardown":
        _properties.pop(report.nodeid, None)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Add the clauses of the test to the report of pytest-xdist, and a text for users.

    If a record of the register expects the failure, the report is that of an expected failure.
    """
    found = _properties.get(crashitem, [])
    ended = PROCESS_ENDED
    if stack := time_limit.pop_stack(_run[0], crashitem):
        ended = Failure("time", (Fact("process", "time limit"),), f"{ended.text}: {stack}")
    report.longrepr = ended.text
    report.user_properties += found
    record.add_failure(report, ended)
    if known := [str(value) for key, value in found if key == ENDS_PROCESS]:
        report.outcome = "skipped"
        report.wasxfail = f"known: {known[0]}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Set the exit status of a usage error if a worker has sent one."""
    if hasattr(session.config, "workerinput"):
        # A signal has ended the controller. It has printed the verdicts so far.
        warnings.filterwarnings(
            "ignore", r"(?s).*OSError: cannot send", PluggyTeardownRaisedWarning
        )
    if _ERROR in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a worker that has sent all reports."""
    if hasattr(config, "workerinput"):
        time_limit.end_soon(0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the usage error of a worker."""
    if _ERROR in config.stash:
        terminalreporter.write_line(f"ERROR: {config.stash[_ERROR]}")
