"""Verdicts of tests and clauses: fail, not-offered, known, pass or not-run.

The verdict of a clause is the first of these that one of its tests has: *not-offered* if the
target lacks a name that the test uses, *known* if the failure is a recorded divergence.

A file of verdicts has one JSON object a line. The first holds ``run``: the metadata of the run.
Each other line holds

* ``test`` and ``verdict``, and ``clause`` if the test names one,
* ``reason`` if the test did not pass,
* ``declared``, the entry of a register that declares the clause as lacking, if the test uses a
  missing name,
* ``by`` if the test compares with torch.nn.parallel alone,
* where implementations differ, ``difference``, the ``failure`` as a register would name it, and
  the smallest ``call`` that shows it.

A line is written as soon as the test has ended, so that a run that is cut off can be resumed.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from spec_tests.harness.conformance import not_offered

VERDICTS = ("fail", "not-offered", "known", "pass", "not-run")
#: The verdicts of tests that fail the run.
ERRORS = ("fail", "not-offered")
#: Key and value of a test that compares with torch.nn.parallel alone.
JUDGED_BY, AGREEMENT = "by", "agreement"
#: The entry of a register that declares the clause of a test as lacking.
DECLARED = not_offered.PROPERTY
_NONE: Mapping[str, str] = MappingProxyType({})
#: The number of characters of a failure that are kept.
_LONGEST = 1500


def of_report(report: pytest.TestReport) -> str | None:
    """Return the verdict of a test; None for a phase that decides nothing."""
    if hasattr(report, "wasxfail"):
        return "known" if report.skipped else "fail"
    if report.failed:
        lacks = any(key == "not-offered" for key, _ in report.user_properties)
        return "not-offered" if lacks else "fail"
    if report.skipped:
        return "not-offered" if declaration_of(report) else "not-run"
    return "pass" if report.when == "call" else None


def clauses_of(report: pytest.TestReport) -> list[str]:
    """Return the clauses of the test; pytest-xdist sends them with the report."""
    return [str(value) for key, value in report.user_properties if key == "clause"]


def declaration_of(report: pytest.TestReport) -> str:
    """Return the entry of a register by which the test is not offered; empty if there is none."""
    return next((str(value) for key, value in report.user_properties if key == DECLARED), "")


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test did not pass: the lines that pytest marks with E, or the skip's reason."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").removeprefix("not-run: ")
    lines = report.longreprtext.splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return "\n".join(marked or lines[-5:])[:_LONGEST]


def shown_by(report: pytest.TestReport) -> dict[str, str]:
    """Return difference, failure and smallest call of a failed test; see `failure_report`."""
    found: dict[str, str] = {}
    for key, value in report.user_properties:
        if key in ("difference", "failure", "call"):
            found[key] = f"{found[key]}\n{value}" if key in found else str(value)
    return {key: _cut(text) for key, text in sorted(found.items())}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def read(path: Path) -> list[dict[str, str]]:
    """Return the tests in the file ``path``; none if there is no such file."""
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "run" not in line]


def by_clause(tests: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the verdict of each clause: the first in `VERDICTS` that one of its tests has."""
    found: dict[str, str] = {}
    for test in tests:
        name, verdict = test.get("clause"), test["verdict"]
        if name is not None:  # tests of the suite itself name none
            found[name] = worse(found.get(name), verdict)
    return dict(sorted(found.items()))


def is_error(test: Mapping[str, str]) -> bool:
    """Whether a test fails the run: it fails, or lacks a name that no register declares."""
    return test["verdict"] in ERRORS and DECLARED not in test


def declared_by_clause(tests: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the entry of the register for each clause that is not offered as it declares."""
    named = [test for test in tests if "clause" in test]
    errors = {test["clause"] for test in named if is_error(test)}
    found = {test["clause"]: test[DECLARED] for test in named if DECLARED in test}
    return {name: entry for name, entry in sorted(found.items()) if name not in errors}


def reference_only(tests: Iterable[dict[str, str]]) -> list[str]:
    """Return the clauses all of whose tests compare with torch.nn.parallel alone."""
    known: dict[str, bool] = {}
    for test in tests:
        name = test.get("clause")
        if name is not None:
            known[name] = known.get(name, False) or test.get(JUDGED_BY) != AGREEMENT
    return sorted(name for name, is_known in known.items() if not is_known)


def reference_only_text(names: list[str]) -> str:
    """Return a sentence with the number and the ids of these clauses."""
    which = f": {', '.join(names)}" if names else ""
    count = "1 clause is" if len(names) == 1 else f"{len(names)} clauses are"
    return f"{count} judged by agreement alone{which}"


def worse(one: str | None, other: str) -> str:
    """Return the verdict that comes first in `VERDICTS`."""
    return min(one or other, other, key=VERDICTS.index)


def table(found: Mapping[str, str], declared: Mapping[str, str] = _NONE) -> list[str]:
    """Return the counts by chapter, the clauses that did not pass, and the declared ones.

    Args:
        found: The verdict of each clause.
        declared: The entry of the register for clauses that are not offered; they share a line.
    """
    counts = Counter((name.split(".", 1)[0], verdict) for name, verdict in found.items())
    chapters = sorted({chapter for chapter, _ in counts})
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for chapter in chapters:
        numbers = "".join(f"{counts[chapter, verdict]:>12}" for verdict in VERDICTS)
        lines.append(f"{chapter:<16}{numbers}")
    totals = Counter(found.values())
    lines.append(f"{'all':<16}" + "".join(f"{totals[verdict]:>12}" for verdict in VERDICTS))
    lines += [
        f"{verdict:>12}  {name}"
        for name, verdict in found.items()
        if verdict != "pass" and name not in declared
    ]
    if declared:
        clauses = "clause" if len(declared) == 1 else "clauses"
        entries = ", ".join(dict.fromkeys(declared.values()))
        lines.append(
            f"not offered, as the register declares: {len(declared)} {clauses} ({entries})"
        )
    return lines
