"""What a run says, clause by clause: pass, fail, known or not-run.

A clause fails if one of its tests fails; else it is known if one is a known divergence; else it
passes if one passes; else it was not run.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

VERDICTS = ("fail", "known", "pass", "not-run")


def of_report(report: pytest.TestReport) -> str | None:
    """The verdict of one test, or None for a phase that decides nothing."""
    if hasattr(report, "wasxfail"):
        return "known" if report.skipped else "fail"
    if report.failed:
        return "fail"
    if report.skipped:
        return "not-run"
    return "pass" if report.when == "call" else None


def clauses_of(report: pytest.TestReport) -> list[str]:
    """The clauses that the test named; they travel with the report between processes."""
    return [str(value) for key, value in report.user_properties if key == "clause"]


class Verdicts:
    """Collects the verdicts of a run and prints them at its end."""

    def __init__(self, jsonl: str | None) -> None:
        self._jsonl = jsonl
        self._tests: list[dict[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict of one phase of one test."""
        verdict = of_report(report)
        if verdict is None:
            return
        for name in clauses_of(report):
            self._tests.append({"clause": name, "test": report.nodeid, "verdict": verdict})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts by chapter, and every clause that did not pass."""
        found = by_clause(self._tests)
        if not found:
            return
        terminalreporter.section("clauses")
        for line in table(found):
            terminalreporter.write_line(line)
        if self._jsonl is not None:
            _write(Path(self._jsonl), self._tests)
            terminalreporter.write_line(f"verdicts of every test: {self._jsonl}")


def by_clause(tests: Iterable[dict[str, str]]) -> dict[str, str]:
    """One verdict a clause: the gravest of its tests', in the order of `VERDICTS`."""
    found: dict[str, str] = {}
    for test in tests:
        name, verdict = test["clause"], test["verdict"]
        found[name] = min(found.get(name, verdict), verdict, key=VERDICTS.index)
    return dict(sorted(found.items()))


def table(found: dict[str, str]) -> list[str]:
    """Counts by chapter, then the clauses that are not simply passed."""
    counts = Counter((name.split(".", 1)[0], verdict) for name, verdict in found.items())
    chapters = sorted({chapter for chapter, _ in counts})
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>9}" for verdict in VERDICTS)]
    for chapter in chapters:
        numbers = "".join(f"{counts[chapter, verdict]:>9}" for verdict in VERDICTS)
        lines.append(f"{chapter:<16}{numbers}")
    totals = Counter(found.values())
    lines.append(f"{'all':<16}" + "".join(f"{totals[verdict]:>9}" for verdict in VERDICTS))
    lines += [f"{verdict:>8}  {name}" for name, verdict in found.items() if verdict != "pass"]
    return lines


def _write(path: Path, tests: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for test in tests:
            file.write(json.dumps(test) + "\n")
