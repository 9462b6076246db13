"""The failures of a run, by cause, and the programs that repeat them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spec_tests.machine import causes, clauses, verdicts
from spec_tests.machine.failed_test import PROGRAM

#: The folder of the programs, below the current one.
FOLDER = Path("repro")
#: The first line of each program.
_NOTE = "# A run replaces this file: copy it before you change it."
#: The largest number of lines of a call, and of a difference.
MAX_LINES = 14
#: The greatest number of characters of a line, and of a cause in the list at the end.
MAX_LENGTH, SUMMARY_LENGTH = 400, 160
#: Matches the address of a tensor, which each run changes.
_ADDRESS = re.compile(r"\b\d{12,}\b")
#: The greatest number of clauses that the list at the end has for a cause.
MAX_CLAUSES = 5


@dataclass
class Cause:
    """The tests that fail for one reason.

    Args:
        text: The text of the first failure, see `causes.find_cause`.
        count: The number of tests.
        commands: For each clause, the command that repeats its first failure.
    """

    text: str
    count: int = 0
    commands: dict[str, str] = field(default_factory=dict)


class Failures:
    """The failures of a run.

    Args:
        format_command: Returns the command that repeats a test, given the id of a clause and the
            name of the test's function.
    """

    def __init__(self, format_command: Callable[[str, str], str]) -> None:
        self._format_command = format_command
        self._programs: Counter[str] = Counter()
        self._statements = {name: each.says for name, each in clauses.load().items()}
        self._found: dict[str, Cause] = {}

    def add(self, report: pytest.TestReport) -> list[str]:
        """Store a failure and write its program.

        Returns:
            The lines that describe the failure; none if it is not the first one of its clauses.
        """
        names = verdicts.clauses_of(report) or ["no clause"]  # A worker ended in a setup.
        details = {"reason": verdicts.reason_of(report), **verdicts.failure_details(report)}
        difference = details.get("difference", details["reason"])
        known = {name for each in self._found.values() for name in each.commands}
        function = report.nodeid.partition("[")[0]
        key = causes.group_key(names[0], difference)
        test = function.rpartition("::")[2]
        cause = self._found.setdefault(key, Cause(causes.find_cause(difference)))
        cause.count += 1
        if cause.commands.keys() >= {*names}:
            return []
        repeat = self._format_command(names[0], test)
        program = next((str(text) for key, text in report.user_properties if key == PROGRAM), None)
        run = self._write_program(names[0], program) if program is not None else None
        cause.commands = {**dict.fromkeys(names, run or repeat), **cause.commands}
        if known >= {*names}:
            return []
        return [
            f"FAIL {', '.join(names)}  {report.nodeid}",
            *(f"  {self._statements.get(name, '')}" for name in names),
            *(f"  | {_shorten(line)}" for line in _lines(report)),
            *([f"  program: {run}"] if run else []),
            f"  repeat: {repeat}",
            "",
        ]

    def _write_program(self, clause: str, text: str) -> str:
        """Write a program of a clause to a file, and return the command that runs it."""
        self._programs[clause] += 1
        number = self._programs[clause]
        # pytest explains assertions only in files whose names have no other dot.
        name = clause.replace(".", "_") + (f"_{number}" if number > 1 else "")
        path = FOLDER / f"{name}.py"
        FOLDER.mkdir(exist_ok=True)
        path.write_text(f"{_NOTE}\n{text}", encoding="utf-8")
        return f"python {path}"

    def summary(self) -> list[str]:
        """Return the lines about each cause, that of the most clauses first."""
        lines = []
        by_size = sorted(self._found.values(), key=lambda each: (-len(each.commands), -each.count))
        for cause in by_size:
            counts = _count(len(cause.commands), "clause"), _count(cause.count, "test")
            text = _shorten(_ADDRESS.sub("…", cause.text), SUMMARY_LENGTH)
            lines.append(f"FAIL {', '.join(counts)}: {text}")
            names = sorted(cause.commands)
            if causes.says_nothing(cause.text):
                lines.append(f"  {self._statements.get(names[0], '')}")
            lines += [f"  {name}  {cause.commands[name]}" for name in names[:MAX_CLAUSES]]
            if more := len(names[MAX_CLAUSES:]):
                lines.append(f"  and {_count(more, 'more clause')}")
        return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lines(report: pytest.TestReport) -> list[str]:
    """Return the first lines of the call, and those of the difference; the last of a traceback."""
    differences = [str(value) for key, value in report.user_properties if key == "difference"]
    calls = [str(value) for key, value in report.user_properties if key == "call"]
    calls = [call for call in calls if not any(call in text for text in differences)]
    return [*_first_lines(calls), *_first_lines(differences)]


def _first_lines(texts: Sequence[str]) -> list[str]:
    lines = [line for text in texts for line in text.splitlines() if line.strip(" ~^")]
    if lines and lines[0].startswith("Traceback"):  # The error is at its end.
        return lines[:1] + lines[1:][-MAX_LINES:]
    return lines[:MAX_LINES]


def _shorten(line: str, length: int = MAX_LENGTH) -> str:
    """Leave out the middle of a long line, because the expected value is at its end."""
    if len(line) <= length:
        return line
    start, end = line[: length // 2], line[-length // 2 :]
    return f"{start.rpartition(' ')[0] or start} … {end.partition(' ')[2] or end}"
