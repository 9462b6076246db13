"""The pytest plugins of the command ``run``.

`Progress` replaces the output of pytest: it prints progress, and at most ten lines for each
failure. `VerdictCounter` prints nothing.
"""

import sys
from collections import Counter

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.pytest_plugin.hooks import pytest_report_header

__all__ = ["Progress", "VerdictCounter"]

#: The number of tests for each line of progress if the output is not a terminal.
TESTS_PER_LINE = 100
#: The greatest number of lines with the call and difference of a failure.
MAX_LINES = 6
#: The greatest number of characters of a line.
MAX_LENGTH = 400


class VerdictCounter:
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
        self._found |= verdicts.by_clause(log.former if log else [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store the verdict fail for each clause that ``lacks`` declares but the target offers."""
        log = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= dict.fromkeys(log.stale if log else (), "fail")

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


class Progress(VerdictCounter):
    """A pytest plugin that prints progress and failures.

    Args:
        repeat_command: The command that repeats the run, without ``--clause``.
    """

    def __init__(self, repeat_command: str) -> None:
        super().__init__()
        self._repeat_command = repeat_command
        self._statements = {name: each.says for name, each in clauses.load().items()}
        self._failures: list[pytest.TestReport] = []
        self._tests = 0

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
        self._tests += report.when == "call"
        self._print_progress(is_call=report.when == "call")

    def _print_progress(self, *, is_call: bool) -> None:
        counts = Counter(self._found.values())
        line = f"{self._tests} tests; clauses: "
        line += ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts.VERDICTS)
        if sys.stdout.isatty():
            self._terminal.rewrite(line, erase=True)
        elif is_call and self._tests % TESTS_PER_LINE == 0:
            self._terminal.write_line(line)

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

    def _failure_lines(self, report: pytest.TestReport) -> list[str]:
        """Return at most ten lines: clause, test, call, difference and the command to repeat."""
        (name, *_) = verdicts.clauses_of(report)
        differences = [str(value) for key, value in report.user_properties if key == "difference"]
        calls = [str(value) for key, value in report.user_properties if key == "call"]
        calls = [call for call in calls if not any(call in text for text in differences)]
        lines = [
            line for text in (*calls, *differences) for line in text.splitlines() if line.strip()
        ]
        return [
            f"FAIL {name}  {report.nodeid}",
            f"  {self._statements[name]}",
            *(f"  | {_shorten(line)}" for line in lines[:MAX_LINES]),
            f"  repeat: {self._repeat_command} --clause={name}",
            "",
        ]


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} …"


def _terminal_reporter(config: pytest.Config) -> pytest.TerminalReporter:
    found = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(found, pytest.TerminalReporter)
    return found
