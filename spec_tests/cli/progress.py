"""The pytest plugins of the command ``run``.

`Progress` replaces the output of pytest: it prints progress, each failure when it happens, and all
failures by cause at the end.
`RunMonitor` prints only the verdicts so far, at a signal.
"""

import os
import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import NoReturn

import pytest

from spec_tests import conftest
from spec_tests.cli.failures import Failures, remove_programs
from spec_tests.machine import clauses, options, verdicts
from spec_tests.machine.session import device_faults
from spec_tests.machine.session import pytest_report_header as header
from spec_tests.machine.verdict_file import Recorder

#: If the output is not a terminal, a line of progress follows this number of tests, or seconds.
TESTS_PER_LINE, SECONDS_PER_LINE = 100, 30
#: The seconds after which a line names a test that is still running. Each next line follows after
#: twice the time.
HEARTBEAT = 10


class RunMonitor:
    """A pytest plugin that handles signals, and stores errors of collection."""

    def __init__(self) -> None:
        self._errors: list[str] = []
        self._chosen: list[str] = []
        # The session has another one.
        self._recorder = Recorder(None, {}, resume=None, metadata=dict)
        # While a test runs, pytest captures the standard output.
        self._stdout = os.dup(1)

    def interrupt(self, signal_number: int, frame: FrameType | None) -> NoReturn:
        """Print the verdicts so far and end this process at once. A handler of a signal.

        A test may catch KeyboardInterrupt, and the end of a session waits for other processes.
        """
        try:
            self._recorder.mark_interrupted()
            self._write("interrupted", *self._summary_lines(), *self._recorder.summary())
        finally:
            os._exit(pytest.ExitCode.INTERRUPTED)

    def _summary_lines(self) -> list[str]:
        """Return lines that the end of a run prints before the verdicts."""
        return []

    def _write(self, *lines: str) -> None:
        # On a terminal, replace the line of progress.
        start = "\r\x1b[K" if os.isatty(self._stdout) else ""
        os.write(self._stdout, "".join([start, *(f"{line}\n" for line in lines)]).encode())

    def has_only_missing_names(self) -> bool:
        """Return whether missing names of the target are the only errors of the run."""
        return not self._errors and all(test.verdict != "fail" for test in self._recorder.tests)

    def has_failed(self) -> bool:
        """Return whether a test has failed."""
        return any(test.verdict in ("fail", "not-offered") for test in self._recorder.tests)

    def not_decided(self) -> list[str]:
        """Return the selected clauses about the target that the run has not decided."""
        found, specification = self._recorder.verdicts, clauses.load()
        names = clauses.matching(self._chosen, specification) or specification
        return [
            name
            for name in names
            if found.get(name, "not-run") in ("not-run", "not-offered")
            and specification[name].is_about_target
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Store the selected clauses, and the plugin that collects the verdicts."""
        self._chosen = session.config.getoption("--clause")
        self._recorder = session.config.pluginmanager.get_plugin("recorder") or self._recorder

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store an error of collection."""
        if report.failed:
            self._errors.append(report.longreprtext)


class Progress(RunMonitor):
    """A pytest plugin that prints progress and failures."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = Failures()
        self._device_faults: list[str] = []
        self._running: dict[str, float] = {}
        self._done: set[str] = set()
        self._last_line, self._last_done = time.monotonic(), 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Return empty texts, so that pytest prints no letter for a test."""
        return report.outcome, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print target, reference, devices and versions."""
        super().pytest_sessionstart(session)
        self._failures.command = options.command(session.config)
        self._device_faults = device_faults(session.config)
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        self._terminal = terminal
        for line in (*header(session.config), conftest.pytest_report_header(session.config)):
            self._terminal.write_line(line)
        self._terminal.write_line("collecting the tests ...")
        # It prints "node down: Not properly terminated" before the failure of a test that hangs.
        workers = session.config.pluginmanager.get_plugin("terminaldistreporter")
        if workers is not None:
            session.config.pluginmanager.unregister(workers)
        threading.Thread(target=self._name_slow_tests, daemon=True).start()

    def _name_slow_tests(self) -> None:
        """Write lines for each test that runs for `HEARTBEAT` s, twice the time, and so on."""
        following: dict[tuple[str, float], int] = {}
        while True:
            time.sleep(1)
            for test, start in list(self._running.items()):
                seconds = following.get((test, start), HEARTBEAT)
                if time.monotonic() - start >= seconds:
                    is_long = seconds > HEARTBEAT
                    note = " (--timeout SECONDS after -- sets its limit)" if is_long else ""
                    self._write(f"running for {seconds} s: {test}{note}")
                    following[test, start] = 2 * seconds

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Store when a test starts."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Remove a test that has ended."""
        self._running.pop(nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Remove a test that has ended its process."""
        self._running.pop(crashitem, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print progress, and the first failure of a clause."""
        if verdicts.verdict_in(report) == "fail":
            self._print_lines(self._failures.add(report))
        self._done.add(report.nodeid)
        self._print_progress(is_call_phase=report.when == "call")

    def _print_progress(self, *, is_call_phase: bool) -> None:
        counts = Counter(self._recorder.verdicts.values())
        done = len(self._done)
        line = f"{done} of {self._recorder.collected} tests; clauses: "
        line += ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts.VERDICTS)
        if sys.stdout.isatty():
            self._terminal.rewrite(line, erase=True)
        elif is_call_phase and (
            done - self._last_done >= TESTS_PER_LINE
            or time.monotonic() - self._last_line > SECONDS_PER_LINE
        ):
            self._last_line, self._last_done = time.monotonic(), done
            self._terminal.write_line(line)

    def _print_lines(self, lines: list[str]) -> None:
        if lines and sys.stdout.isatty():
            self._terminal.rewrite("", erase=True)  # removes the line of progress
            self._terminal.write("\r")
        for line in lines:
            self._terminal.write_line(line, red=line.startswith("FAIL"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Print all failures by cause, and remove programs of clauses that pass."""
        session.config.option.tbstyle = "no"  # pytest prints no section of failures.
        found = self._recorder.verdicts
        remove_programs(name for name in found if found[name] == "pass")
        self._print_lines([*self._errors, *self._summary_lines()])

    def _summary_lines(self) -> list[str]:
        lines = self._failures.summary(self._recorder.tests)
        return [*self._device_faults, *lines] if lines else []
