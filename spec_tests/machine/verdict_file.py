"""The file of ``--verdicts``: it is written during a run, and read by the commands.

A file of verdicts has one JSON object on each line. The first line holds ``run``: the metadata of
the run, with the number of its tests in ``collected``. Each other line has the fields of a
`TestVerdict`. A line is written as soon as the test has ended, so that an interrupted run can be
resumed. The first verdict makes the file. The last line of an interrupted run is `INTERRUPTED`.
A resumed run removes the lines of the tests that it runs again.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from spec_tests.machine import clauses, conclusion, input_files
from spec_tests.machine.clauses import Clause
from spec_tests.machine.verdicts import TestVerdict, find_evidence, verdicts_of, worst

#: The format of a file of verdicts. Other formats are refused.
FORMAT = 2
#: The metadata that a run has in common with the run that it resumes.
_OF_ONE_RUN = ("target", "reference", "torch", "accelerator", "devices", "suite")
#: The last line in the file of an interrupted run.
INTERRUPTED = {"interrupted": True}
#: The exit statuses of a run that has not been interrupted.
_COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Header:
    """The fields of the metadata of a run that readers need. There are others."""

    format: int
    target: str
    torch: str
    accelerator: str
    command: str
    date: str
    collected: int = 0


def read(path: Path) -> list[TestVerdict]:
    """Return the tests in a file of verdicts; an empty list if the file does not exist.

    Raises:
        input_files.RefusedError: The file cannot be read, or a line is not valid.
    """
    return _read_lines(path)[1] if os.path.lexists(path) else []


def read_run(path: Path) -> tuple[dict[str, Any], list[TestVerdict]]:
    """Return the metadata and the tests in a file of verdicts.

    The metadata of a run without verdicts for all tests contain ``incomplete``, a sentence.

    Raises:
        input_files.RefusedError: The file cannot be read, a line is not valid, or the file has no
            tests or not one line of metadata.
    """
    headers, tests, is_interrupted = _read_lines(path)
    if not tests:
        raise input_files.RefusedError(f"{path} contains no verdicts")
    if len(headers) != 1:
        raise input_files.RefusedError(f"{path} contains {len(headers)} headers of runs, not one")
    header = headers[0]
    left = header.get("collected", 0) - len({test.test for test in tests})
    number = [f"{left} of {header['collected']} tests have no verdict"] if left > 0 else []
    if is_interrupted or number:
        state = "the run was interrupted" if is_interrupted else "this run has not ended"
        header["incomplete"] = ": ".join([state, *number])
    return header, tests


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], list[TestVerdict], bool]:
    """Return the metadata and the tests in a file, and whether the run was interrupted."""
    headers, tests, is_interrupted = [], [], False
    for number, text in enumerate(input_files.read_text(path).split("\n"), 1):
        if not text:
            continue
        source = f"{path}, line {number}"
        line = input_files.convert(input_files.parse_json(text, source), dict[str, Any], source)
        is_interrupted = line == INTERRUPTED
        if "run" in line:
            headers.append(_check_header(line["run"], f"the header of {path}"))
        elif not is_interrupted:
            test = input_files.convert(line, TestVerdict, source)
            if test.clause and not clauses.is_id(test.clause):
                raise input_files.refuse(source, f"{test.clause!r} is not the id of a clause")
            tests.append(test)
    return headers, tests, is_interrupted


def _check_header(header: Any, source: str) -> dict[str, Any]:
    if input_files.convert(header, Header, source).format != FORMAT:
        text = f"the format {header['format']} is that of an earlier suite: run the suite again"
        raise input_files.refuse(source, text)
    found: dict[str, Any] = header
    return found


class Recorder:
    """A plugin that collects the verdicts of a run, writes each one, and prints a summary.

    Args:
        path: The file to write; None for no file.
        specification: The clauses of the suite by id.
        resume: Whether the file keeps a verdict of a former run; None for a new file.
        metadata: Returns the metadata of the run for the first line of the file.

    Attributes:
        resumed_tests: The tests of a former run whose verdicts the file keeps.
        outdated: The other tests of that run.
        tests: Those tests, and the tests of this run so far.
        collected: The number of tests of this run.
    """

    def __init__(
        self,
        path: Path | None,
        specification: Mapping[str, Clause],
        *,
        resume: Callable[[TestVerdict], bool] | None,
        metadata: Callable[[], dict[str, Any]],
    ) -> None:
        self._path, self._specification, self._metadata = path, specification, metadata
        former = read(path) if resume and path is not None else []
        self.outdated = {test.test for test in former if resume and not resume(test)}
        self.resumed_tests = [test for test in former if test.test not in self.outdated]
        self.tests: list[TestVerdict] = []
        self._worst: dict[str, TestVerdict] = {}
        for test in self.resumed_tests:
            self._add(test)
        self.collected = 0
        self._file: TextIO | None = None
        self._is_interrupted = False

    def _add(self, test: TestVerdict) -> None:
        self.tests.append(test)
        if test.clause:
            before = self._worst.get(test.clause, test)
            self._worst[test.clause] = worst([before, test])[0]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict so far of each clause."""
        return {name: test.verdict for name, test in self._worst.items()}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse to resume a run of another target, suite or release, or on other devices."""
        if not (self.resumed_tests or self.outdated) or self._path is None:
            return
        now = self._metadata()
        for before in _read_lines(self._path)[0]:
            for name in _OF_ONE_RUN:
                if before.get(name) != now[name]:
                    raise pytest.UsageError(
                        f"{self._path} is of another run: {name} {before.get(name)!r}, and not "
                        f"{now[name]!r}; repeat the command without --resume"
                    )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the number of tests. With pytest-xdist only the workers collect."""
        self.collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Store the number of tests that a worker has collected."""
        self.collected = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the verdict of a test, once for each of its clauses."""
        for test in verdicts_of(report):
            if self._path is not None:
                self._file = self._file or self._open_file(self._path)
                self._file.write(test.dumps() + "\n")
                self._file.flush()
            self._add(test)

    def _open_file(self, path: Path) -> TextIO:
        """Append if the run is resumed; otherwise overwrite the file, and write the header."""
        if self.outdated:
            lines = filter(None, input_files.read_text(path).split("\n"))
            kept = (line for line in lines if json.loads(line).get("test") not in self.outdated)
            input_files.write(path, "".join(f"{line}\n" for line in kept))
        if self.resumed_tests or self.outdated:
            return path.open("a", encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
        header = {"run": self._metadata() | {"collected": self.collected}}
        file.write(json.dumps(header) + "\n")
        return file

    def mark_interrupted(self) -> None:
        """Mark the file as that of an interrupted run."""
        self._is_interrupted = self._file is not None
        if self._file is not None:
            self._file.write(json.dumps(INTERRUPTED) + "\n")
            self._file.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if the resumed run had failures. A resumed run may have no test left."""
        if session.exitstatus not in _COMPLETE or session.shouldstop or session.shouldfail:
            self.mark_interrupted()
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._is_done():
            session.exitstatus = pytest.ExitCode.OK
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and any(test.fails_run for test in self.resumed_tests):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_done(self) -> bool:
        """Return whether the resumed file has the verdicts of all tests of its run."""
        if not self.resumed_tests or self._path is None:
            return False
        collected = max(header.get("collected", 0) for header in _read_lines(self._path)[0])
        return bool(collected <= len({test.test for test in self.resumed_tests}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts by chapter, the clauses that did not pass, and the next command."""
        if lines := self.summary():
            terminalreporter.section("clauses")
        for line in lines:
            terminalreporter.write_line(line)

    def summary(self) -> list[str]:
        """Return the lines at the end of a run; an empty list before the first verdict."""
        evidence = find_evidence(self.tests)
        if not evidence:
            return []
        examples = self._metadata().get("examples")
        concluded = conclusion.conclude(evidence, self._specification, examples=examples)
        lines = conclusion.summary_lines(evidence, self._specification, concluded)
        if lost := [test.test for test in self.tests if test.fails_run and not test.clause]:
            lines.append(f"{len(lost)} tests failed before their clauses were known: {lost[0]}")
        left = self.collected - len({test.test for test in self.tests[len(self.resumed_tests) :]})
        if left > 0:
            lines.append(f"stopped: {left} of {self.collected} tests were not run")
        if not self.collected and self._is_done():
            lines.append(f"no test was run: {self._path} has the verdicts of all tests")
        if self._path is not None:
            lines.append(f"verdicts of all tests: {self._path}")
        before = "" if self._path else "--verdicts FILE, then "
        file = self._path or "FILE"
        lines.append(f"to write a web page: {before}parallel-conformance report {file}")
        if self._is_interrupted:
            lines.append("to continue: repeat the command with --resume")
        return lines

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
