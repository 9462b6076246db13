"""The processes of pytest-xdist: errors of workers, and tests that end one.

If a worker raises an error at collection, pytest-xdist shows only a failed assertion. Here a
worker with a usage error collects no tests and sends the text of the error to the controller,
which prints it. A worker that ends before it has collected tests ends the run.
"""

import re
import warnings
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from pluggy import PluggyTeardownRaisedWarning

from spec_tests.machine import clauses, judge, processes, time_limit, verdicts

_KEY = "usage_error"


def send_error(config: pytest.Config, error: pytest.UsageError) -> None:
    """Send an error of a worker to the controller; raise it in another process."""
    if not hasattr(config, "workeroutput"):
        raise error
    config.workeroutput[_KEY] = str(error)


class Workers:
    """The plugin of a process that may start workers, and tests that end one."""

    def __init__(self) -> None:
        self._error = ""
        self._started: set[str] = set()
        #: For each test that runs, the properties in the report of its setup: its clauses, and
        #: the records that expect that it ends the process.
        self._properties: dict[str, list[tuple[str, object]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the properties of a test after its setup."""
        if report.when == "setup":
            self._properties[report.nodeid] = report.user_properties
        elif report.when == "teardown":
            self._properties.pop(report.nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Any
    ) -> None:
        """Add the clauses and the failure of a test that has ended its process to its report."""
        ended, config = judge.PROCESS_ENDED, sched.config
        worker: Any = report.node
        if reason := time_limit.pop_reason(worker.workerinput):
            text = f"{judge.TIME_IS_UP.text}: {reason}"
            ended = replace(judge.TIME_IS_UP, text=text, error=text.partition(":\n")[0])
        report.longrepr = ended.text
        report.user_properties += self._properties.get(crashitem, [])
        record = verdicts.property_of(report, ended.kind)
        specification, chosen = clauses.of_run(config), config.getoption("--clause")
        judge.add_failure(report, ended, specification, record, chosen)
        # pytest-xdist does not count this failure for -x and --maxfail.
        config.pluginmanager.get_plugin("dsession")._handlefailures(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Store that a worker has started."""
        self._started.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Store the usage error of a worker. End the run if a worker cannot start.

        pytest-xdist would replace the worker again and again.
        """
        usage_error = getattr(node, "workeroutput", {}).get(_KEY)
        if usage_error is not None:
            self._error = usage_error
        elif error is not None and node.gateway.id not in self._started:
            # The first error of a traceback is the cause of the others.
            reason = re.search(r"^[\w.]+: .+$", f"{error}", re.MULTILINE)
            self._error = f"a worker process cannot start: {reason[0] if reason else error}"
            pytest.exit("the run ends", pytest.ExitCode.USAGE_ERROR)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit status of a usage error if a worker has sent one."""
        if self._error:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the usage error of a worker."""
        if self._error:
            terminalreporter.write_line(f"ERROR: {self._error}")


def pytest_configure(config: pytest.Config) -> None:
    """Register `Workers`, except in a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Workers(), "workers")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # pytest restores the filters in its own wrapper
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Print no warning in a worker if a signal has ended the controller."""
    if hasattr(session.config, "workerinput"):  # The controller has printed the verdicts so far.
        warnings.filterwarnings(
            "ignore", r"(?s).*OSError: cannot send", PluggyTeardownRaisedWarning
        )
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a worker that has sent all reports."""
    if hasattr(config, "workerinput"):
        processes.end_soon(0)
