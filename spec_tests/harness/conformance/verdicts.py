"""What a run says, clause by clause: pass, fail, not-offered, known or not-run.

A clause fails if one of its tests fails; else it is not offered if one of them uses a name that
the target lacks; else it is known if one is a known divergence; else it
passes if one passes; else it was not run.

A file of verdicts has one JSON object a line. The first holds ``run``: what `about` says of it.
Each other one holds a ``test``, its ``verdict``, the ``clause`` if the test names one, the
``reason`` if it did not pass, ``by`` if nothing but agreement with torch.nn.parallel says what is
right and, where implementations differ, the ``difference``, the ``failure`` as a register would
name it, and the smallest ``call`` that shows it. A line is written as soon as the test has ended,
so that a run that is cut off can be resumed.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

import pytest

VERDICTS = ("fail", "not-offered", "known", "pass", "not-run")
#: Those of a test that failed.
RED = ("fail", "not-offered")
#: How a test knows what is right, if it asks torch.nn.parallel and nothing else.
BY, AGREEMENT = "by", "agreement"
#: How many characters of a failure are kept.
_LONGEST = 1500


def of_report(report: pytest.TestReport) -> str | None:
    """The verdict of one test, or None for a phase that decides nothing."""
    if hasattr(report, "wasxfail"):
        return "known" if report.skipped else "fail"
    if report.failed:
        lacks = any(key == "not-offered" for key, _ in report.user_properties)
        return "not-offered" if lacks else "fail"
    if report.skipped:
        return "not-run"
    return "pass" if report.when == "call" else None


def clauses_of(report: pytest.TestReport) -> list[str]:
    """The clauses that the test named; they travel with the report between processes."""
    return [str(value) for key, value in report.user_properties if key == "clause"]


def reason_of(report: pytest.TestReport) -> str:
    """Why a test did not pass: what pytest marks with E, or why it was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").removeprefix("not-run: ")
    lines = report.longreprtext.splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return "\n".join(marked or lines[-5:])[:_LONGEST]


def shown_by(report: pytest.TestReport) -> dict[str, str]:
    """Difference, failure and the smallest call of a test that failed, as `failure` tells."""
    found: dict[str, str] = {}
    for key, value in report.user_properties:
        if key in ("difference", "failure", "call"):
            found[key] = f"{found[key]}\n{value}" if key in found else str(value)
    return {key: _cut(text) for key, text in sorted(found.items())}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


class Verdicts:
    """Collects the verdicts of a run, writes each at once, and prints a summary at the end.

    Args:
        jsonl: The file to write; None for none.
        resume: Whether to go on with a file that a run has left.
        about: What says in the file's first line what was run.

    Attributes:
        former: What the run that this one resumes has found, test by test.
    """

    def __init__(
        self,
        jsonl: str | None,
        *,
        resume: bool = False,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._path = None if jsonl is None else Path(jsonl)
        self.former = read(self._path) if resume and self._path is not None else []
        self._tests = [*self.former]
        self._about = about
        self._file: TextIO | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict of one phase of one test."""
        verdict = of_report(report)
        if verdict is None:
            return
        found = {"test": report.nodeid, "verdict": verdict}
        if any(key == BY for key, _ in report.user_properties):
            found[BY] = AGREEMENT
        if verdict != "pass":
            found |= {"reason": reason_of(report), **shown_by(report)}
        for about in [{"clause": name} for name in clauses_of(report)] or [{}]:
            self._note({**about, **found})

    def _note(self, test: dict[str, str]) -> None:
        if self._path is not None:
            if self._file is None:
                self._file = self._opened(self._path)
            self._file.write(json.dumps(test) + "\n")
            self._file.flush()
        self._tests.append(test)

    def _opened(self, path: Path) -> TextIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a test to go on from, what another run has left is written over.
        file = path.open("a" if self._tests else "w", encoding="utf-8")
        if not self._tests:  # it leaves the buffer with the first test
            file.write(json.dumps({"run": self._about()}) + "\n")
        return file

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts by chapter, and every clause that did not pass."""
        found = by_clause(self._tests)
        if not found:
            return
        terminalreporter.section("clauses")
        for line in table(found):
            terminalreporter.write_line(line)
        terminalreporter.write_line(judged_alone(by_agreement_alone(self._tests)))
        if self._path is not None:
            terminalreporter.write_line(f"every test: {self._path}")
        file = self._path or "FILE"
        before = "" if self._path else "--verdicts FILE, then "
        terminalreporter.write_line(f"as pages: {before}parallel-conformance report {file}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where the run that this one resumes has failed."""
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and any(test["verdict"] in RED for test in self.former):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read(path: Path) -> list[dict[str, str]]:
    """The tests that a run has written to ``path`` so far; none where there is no such file."""
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "run" not in line]


def by_clause(tests: Iterable[dict[str, str]]) -> dict[str, str]:
    """One verdict a clause: the gravest of its tests', in the order of `VERDICTS`."""
    found: dict[str, str] = {}
    for test in tests:
        name, verdict = test.get("clause"), test["verdict"]
        if name is not None:  # tests of the suite itself name none
            found[name] = graver(found.get(name), verdict)
    return dict(sorted(found.items()))


def by_agreement_alone(tests: Iterable[dict[str, str]]) -> list[str]:
    """The clauses of which no test knows what is right without torch.nn.parallel."""
    known: dict[str, bool] = {}
    for test in tests:
        name = test.get("clause")
        if name is not None:
            known[name] = known.get(name, False) or test.get(BY) != AGREEMENT
    return sorted(name for name, is_known in known.items() if not is_known)


def judged_alone(names: list[str]) -> str:
    """How many clauses those are, and which."""
    which = f": {', '.join(names)}" if names else ""
    count = "1 clause is" if len(names) == 1 else f"{len(names)} clauses are"
    return f"{count} judged by agreement alone{which}"


def graver(one: str | None, other: str) -> str:
    """The one that comes first in `VERDICTS`."""
    return min(one or other, other, key=VERDICTS.index)


def table(found: dict[str, str]) -> list[str]:
    """Counts by chapter, then the clauses that are not simply passed."""
    counts = Counter((name.split(".", 1)[0], verdict) for name, verdict in found.items())
    chapters = sorted({chapter for chapter, _ in counts})
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for chapter in chapters:
        numbers = "".join(f"{counts[chapter, verdict]:>12}" for verdict in VERDICTS)
        lines.append(f"{chapter:<16}{numbers}")
    totals = Counter(found.values())
    lines.append(f"{'all':<16}" + "".join(f"{totals[verdict]:>12}" for verdict in VERDICTS))
    lines += [f"{verdict:>12}  {name}" for name, verdict in found.items() if verdict != "pass"]
    return lines
