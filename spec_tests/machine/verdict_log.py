"""A plugin that collects the verdicts of a run, writes them to a file and prints a summary."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from spec_tests.machine import verdict_table, verdicts


class VerdictLog:
    """Collects the verdicts of a run, writes each one immediately, and prints a summary.

    Args:
        jsonl: The file to write; None for no file.
        resume: Whether to continue the file of an interrupted run.
        metadata: Returns the metadata of the run for the first line of the file.

    Attributes:
        resumed_tests: The tests of the interrupted run that this run resumes.
        verdicts: The worst verdict so far of each clause.
    """

    def __init__(
        self,
        jsonl: str | None,
        *,
        resume: bool,
        metadata: Callable[[], dict[str, Any]],
    ) -> None:
        self._path = None if jsonl is None else Path(jsonl)
        self.resumed_tests = verdicts.read(self._path) if resume and self._path is not None else []
        self._tests = [*self.resumed_tests]
        self.verdicts = verdicts.by_clause(self._tests)
        self._metadata = metadata
        self._file: TextIO | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the verdict of a test, once for each of its clauses."""
        verdict = verdicts.verdict_of(report)
        if verdict is None:
            return
        found = {"test": report.nodeid, "verdict": verdict}
        if name := verdicts.declared_name(report):
            found[verdicts.DECLARED] = name
        if verdict != "pass":
            found |= {"reason": verdicts.reason_of(report), **verdicts.failure_details(report)}
        for named in [{"clause": name} for name in verdicts.clauses_of(report)] or [{}]:
            self._add_test({**named, **found})

    def _add_test(self, test: dict[str, str]) -> None:
        if self._path is not None:
            if self._file is None:
                self._file = self._open_file(self._path)
            self._file.write(json.dumps(test) + "\n")
            self._file.flush()
        self._tests.append(test)
        if name := test.get("clause"):
            self.verdicts[name] = verdicts.worse_verdict(self.verdicts.get(name), test["verdict"])

    def _open_file(self, path: Path) -> TextIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Append if the run is resumed; otherwise overwrite an existing file.
        file = path.open("a" if self._tests else "w", encoding="utf-8")
        if not self._tests:
            # The first line of a new file is the metadata of the run.
            file.write(json.dumps({"run": self._metadata()}) + "\n")
        return file

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts by chapter, the clauses that did not pass, and the next command."""
        lines = self._summary()
        if lines:
            terminalreporter.section("clauses")
        for line in lines:
            terminalreporter.write_line(line)

    def _summary(self) -> list[str]:
        found = dict(sorted(self.verdicts.items()))
        if not found:
            return []
        lines = verdict_table.table(found, verdicts.declared_by_clause(self._tests))
        lines += verdict_table.missing_names(self._tests)
        lines.append(verdict_table.claim(found))
        if self._path is not None:
            lines.append(f"verdicts of all tests: {self._path}")
        before = "" if self._path else "--verdicts FILE, then "
        file = self._path or "FILE"
        lines.append(f"to write a web page: {before}parallel-conformance report {file}")
        return lines

    def interrupted(self) -> list[str]:
        """Mark the file as that of an interrupted run, and return the lines of the summary."""
        if self._file is None:
            return self._summary()
        self._file.write(json.dumps(verdicts.INTERRUPTED) + "\n")
        self._file.flush()
        return [*self._summary(), "to continue: repeat the command with --resume"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if the resumed run had failures."""
        if _was_interrupted(session):
            self.interrupted()
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and any(map(verdicts.fails_run, self.resumed_tests)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _was_interrupted(session: pytest.Session) -> bool:
    complete = (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )
    return session.exitstatus not in complete or bool(session.shouldstop or session.shouldfail)
