"""What a run prints in place of pytest's own reports: progress, and failures in ten lines."""

import sys
from collections import Counter

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.pytest_plugin.hooks import pytest_report_header

__all__ = ["Progress", "VerdictCounter"]

#: Where there is no terminal: so many tests a line.
STEP = 100
#: Of what differed so much is printed; ``-v`` shows all.
MOST_LINES, MOST_LETTERS = 6, 400


class VerdictCounter:
    """A plugin that remembers the verdict of each clause, and what could not be collected."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._errors: list[str] = []

    def lacks_only(self) -> bool:
        """Whether nothing is wrong but that the target does not offer all."""
        return not self._errors and "fail" not in self._found.values()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Begin with what the run that this one resumes has found."""
        kept = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= verdicts.by_clause(kept.former if kept else [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remember the clauses that a register declares as lacking, and that are offered."""
        kept = session.config.pluginmanager.get_plugin("verdicts")
        self._found |= dict.fromkeys(kept.stale if kept else (), "fail")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected."""
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        verdict = verdicts.of_report(report)
        for name in verdicts.clauses_of(report) if verdict else ():
            self._found[name] = verdicts.worse(self._found.get(name), verdict or "")


class Progress(VerdictCounter):
    """A plugin that prints.

    Args:
        repeat: The command that repeats the run; a failure adds its clause.
    """

    def __init__(self, repeat: str) -> None:
        super().__init__()
        self._repeat = repeat
        self._says = {name: each.says for name, each in clauses.load().items()}
        self._failures: list[pytest.TestReport] = []
        self._tests = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Print no letters."""
        return report.outcome, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say what is judged, and where."""
        super().pytest_sessionstart(session)
        self._terminal = _terminal(session.config)
        for line in pytest_report_header(session.config):
            self._terminal.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count, and show the count."""
        super().pytest_runtest_logreport(report)
        if verdicts.of_report(report) == "fail":
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
        """Print every failure; the table comes after."""
        super().pytest_sessionfinish(session)
        self._terminal.ensure_newline()
        for text in self._errors:
            self._terminal.write_line(text)
        for report in self._failures:
            for line in self._lines(report):
                self._terminal.write_line(line)

    def _lines(self, report: pytest.TestReport) -> list[str]:
        """One failure in ten lines at most."""
        (name, *_) = verdicts.clauses_of(report)
        told = [str(value) for key, value in report.user_properties if key == "difference"]
        calls = [str(value) for key, value in report.user_properties if key == "call"]
        calls = [call for call in calls if not any(call in text for text in told)]
        lines = [line for text in (*calls, *told) for line in text.splitlines() if line.strip()]
        return [
            f"FAIL {name}  {report.nodeid}",
            f"  {self._says[name]}",
            *(f"  | {_short(line)}" for line in lines[:MOST_LINES]),
            f"  again: {self._repeat} --clause={name}",
            "",
        ]


def _short(line: str) -> str:
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]} …"


def _terminal(config: pytest.Config) -> pytest.TerminalReporter:
    found = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(found, pytest.TerminalReporter)
    return found
