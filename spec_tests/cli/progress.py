"""The pytest plugins of the command ``run``.

`Progress` replaces the output of pytest: it prints progress with an estimate of the time left, at
most ten lines for each failure, and the slowest tests. `VerdictCollector` prints nothing.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.pytest_plugin.hooks import pytest_report_header

__all__ = ["Progress", "VerdictCollector"]

#: The number of tests for each line of progress if the output is not a terminal.
TESTS_PER_LINE = 100
#: The number of the slowest tests that are printed at the end, and the least duration in seconds.
SLOWEST, LEAST_SECONDS = 5, 1
#: The largest number of lines for one failure: those of the call, then those of the difference.
MAX_LINES = 6
#: The greatest number of characters of a line.
MAX_LENGTH = 400


class VerdictCollector:
    """A pytest plugin that stores the verdict of each clause, and errors of collection."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._errors: list[str] = []

    def has_only_missing_names(self) -> bool:
        """Return whether missing names of the target are the only errors of the run."""
        return not self._errors and "fail" not in self._found.values()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Load the verdicts of the interrupted run that this run resumes."""
        log = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= verdicts.by_clause(log.resumed_tests if log else [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store the verdict fail for each clause that ``lacks`` declares but the target offers."""
        log = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= dict.fromkeys(log.stale_declarations if log else (), "fail")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store an error of collection."""
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the worst verdict so far for each clause of the test."""
        verdict = verdicts.verdict_of(report)
        for name in verdicts.clauses_of(report) if verdict else ():
            self._found[name] = verdicts.worse_verdict(self._found.get(name), verdict or "")


class Progress(VerdictCollector):
    """A pytest plugin that prints progress and failures.

    Args:
        format_repeat_command: Returns the command that repeats a test, given the id of a clause
            and the name of the test's function.
    """

    def __init__(self, format_repeat_command: Callable[[str, str], str]) -> None:
        super().__init__()
        self._format_repeat_command = format_repeat_command
        self._statements = {name: each.says for name, each in clauses.load().items()}
        self._failures: list[pytest.TestReport] = []
        self._seconds: dict[str, float] = {}
        self._total = 0
        self._start = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Return empty texts, so that pytest prints no letter for a test."""
        return report.outcome, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print target, reference, devices and versions."""
        super().pytest_sessionstart(session)
        self._terminal = _terminal_reporter(session.config)
        for line in pytest_report_header(session.config):
            self._terminal.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the verdict, and print progress."""
        super().pytest_runtest_logreport(report)
        if verdicts.verdict_of(report) == "fail":
            self._failures.append(report)
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        self._print_progress(is_call_phase=report.when == "call")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the number of tests. With pytest-xdist only the workers collect."""
        self._start_tests(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Store the number of tests that a worker has collected."""
        self._start_tests(len(ids))

    def _start_tests(self, total: int) -> None:
        self._total = max(self._total, total)
        self._start = time.monotonic()

    def _print_progress(self, *, is_call_phase: bool) -> None:
        counts = Counter(self._found.values())
        done = len(self._seconds)
        line = f"{done} of {self._total} tests{self._remaining_time(done)}; clauses: "
        line += ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts.VERDICTS)
        if sys.stdout.isatty():
            self._terminal.rewrite(line, erase=True)
        elif is_call_phase and done % TESTS_PER_LINE == 0:
            self._terminal.write_line(line)

    def _remaining_time(self, done: int) -> str:
        """Return the estimated time left as text, or an empty text at the end."""
        left = self._total - done
        if left <= 0:
            return ""
        seconds = (time.monotonic() - self._start) / done * left
        return f", {math.ceil(seconds / 60)} min left"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Print every failure."""
        super().pytest_sessionfinish(session)
        self._terminal.ensure_newline()
        for text in self._errors:
            self._terminal.write_line(text)
        for report in self._failures:
            for line in self._failure_lines(report):
                self._terminal.write_line(line)
        for line in self._slowest_lines():
            self._terminal.write_line(line)

    def _slowest_lines(self) -> list[str]:
        slowest = sorted(self._seconds.items(), key=lambda each: each[1], reverse=True)[:SLOWEST]
        rows = [
            f"{duration:>8.1f} s  {name}"
            for name, duration in slowest
            if duration >= LEAST_SECONDS
        ]
        return ["slowest tests:", *rows] if rows else []

    def _failure_lines(self, report: pytest.TestReport) -> list[str]:
        """Return at most ten lines: clause, test, call, difference and the command to repeat."""
        (name, *_) = verdicts.clauses_of(report)
        differences = [str(value) for key, value in report.user_properties if key == "difference"]
        calls = [str(value) for key, value in report.user_properties if key == "call"]
        calls = [call for call in calls if not any(call in text for text in differences)]
        lines = [
            line for text in (*calls, *differences) for line in text.splitlines() if line.strip()
        ]
        test = report.nodeid.partition("[")[0].rpartition("::")[2]
        return [
            f"FAIL {name}  {report.nodeid}",
            f"  {self._statements[name]}",
            *(f"  | {_shorten(line)}" for line in lines[:MAX_LINES]),
            f"  repeat: {self._format_repeat_command(name, test)}",
            "",
        ]


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} …"


def _terminal_reporter(config: pytest.Config) -> pytest.TerminalReporter:
    found = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(found, pytest.TerminalReporter)
    return found
