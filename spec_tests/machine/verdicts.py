"""Verdicts of tests and clauses: fail, not-offered, known, pass or not-run.

*not-offered* means that the target lacks a name that the test uses, *known* that the failure is a
recorded divergence. The verdict of a clause is the worst verdict of its tests, in the order
above.

A file of verdicts has one JSON object on each line. The first line holds ``run``: the metadata of
the run. Each other line holds

* ``test`` and ``verdict``, and ``clause`` if the test names one,
* ``reason`` if the test did not pass,
* ``declared`` if the test uses a missing name that ``lacks`` of the register declares: the name,
* if the test failed, ``difference``, the ``failure`` and what ``differs`` in the format of a
  register, and the smallest failing ``call``.

A line is written as soon as the test has ended, so that an interrupted run can be resumed. The
last line of an interrupted run is `INTERRUPTED`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spec_tests.machine import clauses, input_files

#: All verdicts, worst first.
VERDICTS = ("fail", "not-offered", "known", "pass", "not-run")
#: Verdicts that fail the run if a test has them.
ERRORS = ("fail", "not-offered")
#: Key, in a report and in the line of a test, for the missing name that the register declares.
DECLARED = "declared"
#: The last line in the file of an interrupted run.
INTERRUPTED = {"interrupted": True}
_OPTIONAL = ("clause", "reason", "failure", "differs", "difference", "call", DECLARED)
#: The shape of the line of a test.
_TEST = {
    "test": str,
    "verdict": VERDICTS,
    **{f"{key}?": str for key in _OPTIONAL},
}
#: The shape of the metadata of a run. Other fields are not checked.
HEADER = {
    "format": 1,
    **dict.fromkeys(("target", "torch", "accelerator", "command", "date"), str),
    **dict.fromkeys(("version?", "python?", "suite?"), str),
    "clauses?": [str],
}
#: Length in characters to which a text in a file of verdicts is cut.
_MAX_LENGTH = 1500


def verdict_of(report: pytest.TestReport) -> str | None:
    """Return the verdict of a test; None if this phase (such as a passing setup) has none."""
    if hasattr(report, "wasxfail"):
        return "known" if report.skipped else "fail"
    if report.failed:
        lacks = any(key == "not-offered" for key, _ in report.user_properties)
        return "not-offered" if lacks else "fail"
    if report.skipped:
        return "not-offered" if declared_name(report) else "not-run"
    return "pass" if report.when == "call" else None


def clauses_of(report: pytest.TestReport) -> list[str]:
    """Return the ids of the clauses of a test from its report."""
    return [str(value) for key, value in report.user_properties if key == "clause"]


def declared_name(report: pytest.TestReport) -> str:
    """Return the declared missing name because of which a test was skipped, else an empty text."""
    return next((str(value) for key, value in report.user_properties if key == DECLARED), "")


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test did not pass.

    That is the missing name, else the skip's reason, else the lines that pytest marks with E.
    """
    for key, value in report.user_properties:
        if key == "not-offered" and not hasattr(report, "wasxfail"):
            return str(value)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").removeprefix("not-run: ")
    lines = report.longreprtext.splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return "\n".join(marked or lines[-5:])[:_MAX_LENGTH]


def failure_details(report: pytest.TestReport) -> dict[str, str]:
    """Return difference, failure and smallest call of a failed test; see `failure_report`."""
    found: dict[str, str] = {}
    for key, value in report.user_properties:
        if key in ("difference", "failure", "differs", "call"):
            found[key] = f"{found[key]}\n{value}" if key in found else str(value)
    return {key: _shorten(text) for key, text in sorted(found.items())}


def _shorten(text: str) -> str:
    """Leave out the middle of a long text, because a traceback ends with its error."""
    half = _MAX_LENGTH // 2
    return text if len(text) <= _MAX_LENGTH else f"{text[:half]} … {text[-half:]}"


def read(path: Path) -> list[dict[str, str]]:
    """Return the tests in a file of verdicts; an empty list if the file does not exist.

    Raises:
        input_files.RefusedError: The file cannot be read, or a line is not valid.
    """
    return _split_lines(path)[1] if os.path.lexists(path) else []


def read_run(path: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the metadata and the tests in a file of verdicts.

    The metadata of an interrupted run contain `INTERRUPTED`.

    Raises:
        input_files.RefusedError: The file cannot be read, a line is not valid, or the file has no
            tests or not one line of metadata.
    """
    headers, tests = _split_lines(path)
    if not tests:
        raise input_files.RefusedError(f"{path} contains no verdicts")
    if len(headers) != 1:
        raise input_files.RefusedError(f"{path} contains {len(headers)} headers of runs, not one")
    input_files.check(headers[0], HEADER, f"the header of {path}")
    return headers[0], tests


def _split_lines(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    lines = _parse_lines(path)
    headers = [
        each["run"] | (INTERRUPTED if lines[-1] == INTERRUPTED else {})
        for each in lines
        if "run" in each
    ]
    return headers, [each for each in lines if "test" in each]


def _parse_lines(path: Path) -> list[dict[str, Any]]:
    texts = input_files.read_text(path).split("\n")
    return [
        _parse_line(text, f"{path}, line {number}") for number, text in enumerate(texts, 1) if text
    ]


def _parse_line(text: str, source: str) -> dict[str, Any]:
    line: dict[str, Any] = input_files.parse_json(text, source)
    input_files.check(line, {}, source)
    if "run" not in line and line != INTERRUPTED:
        input_files.check(line, _TEST, source)
        if not clauses.is_id(line.get("clause", "a.b")):
            raise input_files.refuse(source, f"{line['clause']!r} is not the id of a clause")
    return line


def by_clause(tests: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the verdict of each clause: the worst verdict of its tests."""
    found: dict[str, str] = {}
    for test in tests:
        name, verdict = test.get("clause"), test["verdict"]
        if name is not None:  # tests of the suite itself have no clause
            found[name] = worse_verdict(found.get(name), verdict)
    return dict(sorted(found.items()))


def fails_run(test: Mapping[str, str]) -> bool:
    """Return whether a test fails the run. A missing name that ``lacks`` declares is no error."""
    return test["verdict"] in ERRORS and DECLARED not in test


def declared_by_clause(tests: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the clauses without errors whose tests use missing names that ``lacks`` declares.

    The values are the names.
    """
    named = [test for test in tests if "clause" in test]
    errors = {test["clause"] for test in named if fails_run(test)}
    found = {test["clause"]: test[DECLARED] for test in named if DECLARED in test}
    return {name: entry for name, entry in sorted(found.items()) if name not in errors}


def worse_verdict(first: str | None, second: str) -> str:
    """Return the worse of two verdicts, the earlier one in `VERDICTS`. ``first`` may be None."""
    return min(first or second, second, key=VERDICTS.index)
