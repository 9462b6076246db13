"""The output of a run instead of pytest's: progress, and ten lines for each failure."""

import sys
from collections import Counter

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.pytest_plugin.hooks import pytest_report_header

__all__ = ["Progress", "VerdictCounter"]

#: The number of tests between two lines of progress if the output is no terminal.
STEP = 100
#: The greatest number of lines of a failure, and of characters of a line.
MAX_LINES, MAX_LENGTH = 6, 400


class VerdictCounter:
    """A plugin that stores the verdict of each clause, and errors of collection."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._errors: list[str] = []

    def lacks_only(self) -> bool:
        """Return whether the run has no other errors than missing names of the target."""
        return not self._errors and "fail" not in self._found.values()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Load the verdicts of the interrupted run that this run resumes."""
        log = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= verdicts.by_clause(log.former if log else [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store a failure for each clause with a stale declaration in ``lacks``."""
        log = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= dict.fromkeys(log.stale if log else (), "fail")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store an error of collection."""
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the verdict."""
        verdict = verdicts.verdict_of(report)
        for name in verdicts.clauses_of(report) if verdict else ():
            self._found[name] = verdicts.worse_verdict(self._found.get(name), verdict or "")


class Progress(VerdictCounter):
    """A plugin that prints progress and failures.

    Args:
        repeat: The command that repeats the run, without ``--clause``.
    """

    def __init__(self, repeat: str) -> None:
        super().__init__()
        self._repeat = repeat
        self._says = {name: each.says for name, each in clauses.load().items()}
        self._failures: list[pytest.TestReport] = []
        self._tests = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Return no letters, so that pytest prints none."""
        return report.outcome, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print target, reference, devices and versions."""
        super().pytest_sessionstart(session)
        self._terminal = _terminal(session.config)
        for line in pytest_report_header(session.config):
            self._terminal.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the verdict, and print progress."""
        super().pytest_runtest_logreport(report)
        if verdicts.verdict_of(report) == "fail":
            self._failures.append(report)
        self._tests += report.when == "call"
        self._show(counted=report.when == "call")

    def _show(self, *, counted: bool) -> None:
        counts = Counter(self._found.values())
        line = f"{self._tests} tests; clauses: "
        line += ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts.VERDICTS)
        if sys.stdout.isatty():
            self._terminal.rewrite(line, erase=True)
        elif counted and self._tests % STEP == 0:
            self._terminal.write_line(line)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Print every failure."""
        super().pytest_sessionfinish(session)
        self._terminal.ensure_newline()
        for text in self._errors:
            self._terminal.write_line(text)
        for report in self._failures:
            for line in self._lines(report):
                self._terminal.write_line(line)

    def _lines(self, report: pytest.TestReport) -> list[str]:
        """Return at most ten lines about a failure."""
        (name, *_) = verdicts.clauses_of(report)
        differences = [str(value) for key, value in report.user_properties if key == "difference"]
        calls = [str(value) for key, value in report.user_properties if key == "call"]
        calls = [call for call in calls if not any(call in text for text in differences)]
        lines = [
            line for text in (*calls, *differences) for line in text.splitlines() if line.strip()
        ]
        return [
            f"FAIL {name}  {report.nodeid}",
            f"  {self._says[name]}",
            *(f"  | {_shorten(line)}" for line in lines[:MAX_LINES]),
            f"  repeat: {self._repeat} --clause={name}",
            "",
        ]


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} …"


def _terminal(config: pytest.Config) -> pytest.TerminalReporter:
    found = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(found, pytest.TerminalReporter)
    return found
