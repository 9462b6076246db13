"""The failures of a run, grouped by clause and then by cause, and their programs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spec_tests.cli import failure_texts
from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.pytest_plugin.program import PROGRAM

__all__ = ["Failures"]

#: The folder, below the current one, of the programs that repeat failures.
FOLDER = Path("repro")
#: The largest number of lines for one failure: those of the call, then those of the difference.
MAX_LINES = 6
#: The greatest number of characters of a line, and of a failure in the list at the end.
MAX_LENGTH, SUMMARY_LENGTH = 400, 160


@dataclass
class Cause:
    """The tests of a clause that fail for one reason.

    Args:
        text: Class and text of the first failure.
        command: The command that repeats this failure.
        count: The number of tests.
    """

    text: str
    command: str
    count: int = 1


class Failures:
    """The failures of a run.

    Args:
        format_repeat_command: Returns the command that repeats a test, given the id of a clause
            and the name of the test's function.
    """

    def __init__(self, format_repeat_command: Callable[[str, str], str]) -> None:
        self._format_repeat_command = format_repeat_command
        self._statements = {name: each.says for name, each in clauses.load().items()}
        self._found: dict[str, dict[str, Cause]] = {}

    def add(self, report: pytest.TestReport) -> list[str]:
        """Store a failure and write its program.

        Returns:
            The lines that describe the failure; none if it is not the first one of its clause.
        """
        name = next(iter(verdicts.clauses_of(report)), "no clause")  # A worker ended in a setup.
        causes = self._found.setdefault(name, {})
        details = {"reason": verdicts.reason_of(report), **verdicts.failure_details(report)}
        text = failure_texts.specific(details)
        cause = failure_texts.shorten(text)
        if cause in causes:
            causes[cause].count += 1
            return []
        test = report.nodeid.partition("[")[0].rpartition("::")[2]
        repeat = self._format_repeat_command(name, test)
        program = _write_program(report, f"{name}.{len(causes) + 1}" if causes else name)
        causes[cause] = Cause(text.removeprefix("AssertionError: "), program or repeat)
        if len(causes) > 1:
            return []
        return [
            f"FAIL {name}  {report.nodeid}",
            f"  {self._statements.get(name, '')}",
            *(f"  | {_shorten(line)}" for line in _lines(report)[:MAX_LINES]),
            *([f"  program: {program}"] if program else []),
            f"  repeat: {repeat}",
            "",
        ]

    def summary(self) -> list[str]:
        """Return two lines for each cause of each clause."""
        lines = []
        for name, causes in sorted(self._found.items()):
            for each in causes.values():
                more = f"  (and {each.count - 1} more)" if each.count > 1 else ""
                lines.append(f"FAIL {name}  {each.command}")
                lines.append(f"  {_shorten(each.text, SUMMARY_LENGTH)}{more}")
        return lines


def _write_program(report: pytest.TestReport, name: str) -> str | None:
    """Write the program that repeats a failure, if there is one, and return its command."""
    text = next((str(text) for key, text in report.user_properties if key == PROGRAM), None)
    if text is None:
        return None
    # pytest explains assertions only in files whose names have no other dot.
    path = FOLDER / f"{name.replace('.', '_')}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return f"python {path}"


def _lines(report: pytest.TestReport) -> list[str]:
    """Return the lines of the call and of the difference."""
    differences = [str(value) for key, value in report.user_properties if key == "difference"]
    calls = [str(value) for key, value in report.user_properties if key == "call"]
    calls = [call for call in calls if not any(call in text for text in differences)]
    return [line for text in (*calls, *differences) for line in text.splitlines() if line.strip()]


def _shorten(line: str, length: int = MAX_LENGTH) -> str:
    """Leave out the middle of a long line, because the expected value is at its end."""
    half = length // 2
    return line if len(line) <= length else f"{line[:half]} … {line[-half:]}"
