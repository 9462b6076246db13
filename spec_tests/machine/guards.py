"""What every test runs inside: the state of the process, the time limit, a process that ends.

A test fails if it changes the state of the process or of its thread. Most tests call the target
directly; `outcome.observe` checks calls that are compared. A test that ends its worker fails under
its clauses, or is known if a record of the register expects this; a new worker runs the other
tests. The time limit ends the process of a test. An exception would not end the test: Hypothesis
would catch it and make the hanging call again, and a thread that waits in C++ handles no signal.

If a worker raises an error at collection, pytest-xdist shows only a failed assertion. Here a
worker with a usage error collects no tests and sends the text of the error to the controller,
which prints it. A worker that ends before it has collected tests ends the run.
"""

import faulthandler
import hashlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import unittest
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pluggy import PluggyTeardownRaisedWarning

from spec_tests import simulator
from spec_tests.failure import Fact, Failure, end_test, error_fact, failed
from spec_tests.machine import clauses, judge, process_state, verdicts
from spec_tests.machine.devices import NOT_RUN
from spec_tests.machine.fixtures import topology_of
from spec_tests.machine.judge import PROCESS_ENDED, TIME_IS_UP
from spec_tests.machine.target import NotOffered
from spec_tests.simulator.pytest_plugin import is_simulated, race_text

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
    try:
        result = yield
    except (*_SKIPS, *_ENDS_RUN) as error:
        if _is_of_suite(error):
            raise
        name = type(error).__name__
        text = f"the target raises {name}: {error}"
        found = Failure("error", (error_fact(name, str(error)),), text, f"{name}: {error}")
        raise failed(found) from None
    changed = process_state.changes(before, process_state.read(topology))
    if len(sys.modules) > modules:  # An import may add filters.
        changed.pop("warning filters", None)
    if changed:
        facts = tuple(Fact("state", name) for name in changed)
        text = f"the call changed the {'; the '.join(changed.values())}"
        end_test(Failure("state", facts, text))
    return result


def _is_of_suite(error: BaseException) -> bool:
    """Return whether the suite has skipped the test, or the user has pressed Ctrl-C."""
    if isinstance(error, _SKIPS):
        return type(error) is NotOffered or str(error).startswith(NOT_RUN)
    # With another handler than Python's own, Ctrl-C does not raise it.
    is_users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return type(error) is KeyboardInterrupt and is_users


@pytest.hookimpl(wrapper=True)
def check_races(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passing test if its accesses to device memory race: a hook for a conftest.py."""
    late = item.config.getoption("late_copies")
    ignores_races = item.config.getoption("races") is False
    if not is_simulated() or (ignores_races and late is None):
        return (yield)
    with simulator.races(late_copies=late) as found:
        result = yield
    if found and not ignores_races:
        end_test(Failure("race", (Fact("memory", "race"),), race_text(found)))
    return result


#: The chapters about single functions, and files whose tests compile modules or start processes.
_OF_ONE_FUNCTION = ("comm", "functions", "scatter_gather", "replicate", "parallel_apply")
SLOW = ("test_compiled", "test_compiled_modules", "test_callers")
#: The seconds that an example of a test of single functions may take, and those of its process.
EXAMPLE_LIMIT, PROCESSOR_LIMIT = 120, 60
#: The number of frames of the stack, innermost last.
_FRAMES = 6
#: Seconds that a process has to end by itself.
_END_LIMIT = 5


def end_soon(status: int) -> None:
    """End this process with ``status`` in a few seconds, although a thread may never end."""
    timer = threading.Timer(_END_LIMIT, os._exit, (status,))
    timer.daemon = True
    timer.start()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Start the timer of a test in a worker. Without workers pytest-timeout prints all stacks."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid")
    if run is None or settings.method != "thread":
        return None
    is_single = item.path.parent.name in _OF_ONE_FUNCTION and item.path.stem not in SLOW
    is_given = item.config.option.has_time_limit or item.get_closest_marker("timeout") is not None
    ended = threading.Event()
    limit = settings.timeout if is_given or not is_single else None
    arguments = _path(run, item.nodeid), limit, threading.get_ident(), ended
    threading.Thread(target=_end_at_limit, args=arguments, daemon=True).start()
    item.cancel_timeout = ended.set  # pytest-timeout calls it at the end of the test
    return True


def _end_at_limit(path: Path, limit: float | None, thread: int, ended: threading.Event) -> None:
    """End the process if the test reaches ``limit``; None: if an example reaches its limits.

    If a thread hangs in C and keeps the interpreter lock, this function does not run any more, and
    faulthandler ends the process.
    """
    start = time.monotonic()
    while True:
        faulthandler.dump_traceback_later(2 * (limit or EXAMPLE_LIMIT), exit=True)
        if ended.wait(1):
            faulthandler.cancel_dump_traceback_later()
            return
        if text := _reached_limit(limit, time.monotonic() - start):
            _end(path, text, thread)


def _reached_limit(limit: float | None, seconds: float) -> str:
    """Return which limit a test has reached after ``seconds``; empty if it has reached none."""
    if limit is not None:
        return f"it has not ended in {limit:g} s" if seconds >= limit else ""
    of_example, own = judge.seconds_of_example()
    if of_example > EXAMPLE_LIMIT:
        return f"an example has not ended in {EXAMPLE_LIMIT} s"
    if own > PROCESSOR_LIMIT:
        return f"an example has not ended in {PROCESSOR_LIMIT} s of processor time"
    return ""


def _end(path: Path, text: str, thread: int) -> None:
    stack = traceback.format_stack(sys._current_frames()[thread])[-_FRAMES:]
    with suppress(OSError):  # The disk may be full.
        path.write_text(f"{text}:\n{''.join(stack)}", "utf-8")
    os._exit(1)


def pop_stack(run: str, node_id: str) -> str:
    """Return the text about a test that its time limit has ended; empty for other tests."""
    path = _path(run, node_id)
    text = path.read_text("utf-8") if path.exists() else ""
    path.unlink(missing_ok=True)
    return text


def _path(run: str, node_id: str) -> Path:
    name = hashlib.sha256(f"{run} {node_id}".encode()).hexdigest()
    return Path(tempfile.gettempdir()) / f"parallel-conformance-{name}"


_KEY = "usage_error"


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


class Workers:
    """The plugin of a process that may start workers: errors of workers, tests that end one."""

    def __init__(self) -> None:
        self._error = ""
        #: For each test that runs, the pairs in the report of its setup: its clauses.
        self._properties: dict[str, list[tuple[str, object]]] = {}
        self._started: set[str] = set()
        #: The id of the run, of which the workers know.
        self._run = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Store that a worker has started."""
        self._started.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Store the usage error of a worker. End the run if a worker cannot start.

        pytest-xdist would replace the worker again and again.
        """
        self._run = node.workerinput["testrunuid"]
        usage_error = getattr(node, "workeroutput", {}).get(_KEY)
        if usage_error is not None:
            self._error = usage_error
        elif error is not None and node.gateway.id not in self._started:
            # The first error of a traceback is the cause of the others.
            reason = re.search(r"^[\w.]+: .+$", f"{error}", re.MULTILINE)
            self._error = f"a worker process cannot start: {reason[0] if reason else error}"
            pytest.exit("the run ends", pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the properties of a test after its setup; the test may end the process."""
        if report.when == "setup":
            self._properties[report.nodeid] = report.user_properties
        elif report.when == "teardown":
            self._properties.pop(report.nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Any
    ) -> None:
        """Add the clauses of the test to the report of pytest-xdist, and a text for users.

        If a record of the register expects the failure, the report is that of an expected failure.
        """
        ended = PROCESS_ENDED
        if stack := pop_stack(self._run, crashitem):
            ended = replace(TIME_IS_UP, text=f"{TIME_IS_UP.text}: {stack}")
        report.longrepr = ended.text
        report.user_properties += self._properties.get(crashitem, [])
        record = verdicts.property_of(report, str(ended.facts[0]))
        judge.add_failure(report, ended, record, sched.config.getoption("--clause"))
        # pytest-xdist does not count this failure for -x and --maxfail.
        sched.config.pluginmanager.get_plugin("dsession")._handlefailures(report)

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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Print no warning in a worker if a signal has ended the controller."""
    if hasattr(session.config, "workerinput"):  # The controller has printed the verdicts so far.
        warnings.filterwarnings(
            "ignore", r"(?s).*OSError: cannot send", PluggyTeardownRaisedWarning
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a worker that has sent all reports."""
    if hasattr(config, "workerinput"):
        end_soon(0)
