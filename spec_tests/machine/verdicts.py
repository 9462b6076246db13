"""The verdict of a test for each of its clauses, and the verdict of a clause.

The verdict of a clause is the worst verdict of its tests. These are the verdicts, worst first:

* *fail*: the test fails in a fact that violates the clause.
* *not-offered*: the target lacks a name that the test uses.
* *known*: the test fails as a record of the register expects.
* *pass*
* *not-run*: the test was not run, or it fails in facts of other clauses. Then the clause is
  undecided, even if its other tests pass.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pytest

from spec_tests.failure import Failure
from spec_tests.machine import input_files

Verdict = Literal["fail", "not-offered", "known", "pass", "not-run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: Keys in the report of a test: its clauses that the run selects and the others, the JSON of its
#: failure, the missing name that the register declares, the program that repeats the failure, and
#: a clause that the failure violates.
CLAUSE, UNSELECTED = "clause", "clause that is not selected"
FAILURE, DECLARED, PROGRAM, VIOLATED = "failure", "declared", "program", "violated"

#: The beginning of the reason in the report of a test that is not run.
NOT_RUN = "not-run: "


class NotRun(pytest.skip.Exception):  # type: ignore[misc, name-defined] # typed as Any
    """The error of a test with the verdict not-run, which the suite alone may raise."""

    # pytest writes the name and the text of an error to the report.
    __module__, __qualname__ = "builtins", NOT_RUN.rstrip(": ")


@dataclass(frozen=True)
class TestVerdict:
    """The verdict of a test, for one of its clauses.

    Args:
        test: The node id.
        verdict: The verdict.
        clause: The id of the clause; empty for a test of the suite itself.
        reason: Why the test was not run, or does not decide the clause.
        declared: The missing name that the test uses, if ``lacks`` of the register declares it.
        failure: The failure, if the test did not pass and was run.
    """

    __test__ = False

    test: str
    verdict: Verdict
    clause: str = ""
    reason: str = ""
    declared: str = ""
    failure: Failure | None = None

    @property
    def rank(self) -> float:
        """The place among the verdicts for one clause, the worst first."""
        is_undecided = self.verdict == "not-run" and self.failure
        return VERDICTS.index("pass") - 0.5 if is_undecided else VERDICTS.index(self.verdict)

    @property
    def fails_run(self) -> bool:
        """Whether the test fails the run. A missing name that ``lacks`` declares is no error."""
        return self.verdict in ("fail", "not-offered") and not self.declared

    def dumps(self) -> str:
        """Return the line of a file of verdicts."""
        fields = {name: value for name, value in vars(self).items() if value}
        return json.dumps(fields | ({"failure": self.failure.to_json()} if self.failure else {}))


def verdict_in(report: pytest.TestReport) -> Verdict | None:
    """Return the verdict of a test; None if this phase (such as a passing setup) has none."""
    if hasattr(report, "wasxfail"):
        return "known"
    if report.failed:
        failure = failure_in(report)
        return "not-offered" if failure and failure.kind == "not-offered" else "fail"
    if report.skipped:
        return "not-offered" if property_of(report, DECLARED) else "not-run"
    return "pass" if report.when == "call" else None


def property_of(report: pytest.TestReport, name: str) -> str:
    """Return the first value of a property of a report; empty if it has none."""
    return next(iter(_properties(report, name)), "")


def failure_in(report: pytest.TestReport) -> Failure | None:
    """Return the failure in the report of a test, if it has one."""
    text = property_of(report, FAILURE)
    return input_files.convert(json.loads(text), Failure, "the report") if text else None


def clauses_in(report: pytest.TestReport) -> list[str]:
    """Return the clauses of the test of a report, also those that the run does not select."""
    return _properties(report, CLAUSE, UNSELECTED)


def _properties(report: pytest.TestReport, *names: str) -> list[str]:
    return [str(value) for key, value in report.user_properties if key in names]


def verdicts_of(report: pytest.TestReport) -> list[TestVerdict]:
    """Return the verdict of a test for each clause; an empty list without a verdict.

    A failed test has the verdict for the clauses that its failure violates, also if the run does
    not select them. Its other clauses are undecided.
    """
    verdict = verdict_in(report)
    if verdict is None:
        return []
    reason = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix("Skipped: ").removeprefix(NOT_RUN)
        reason = text.partition("\n")[0]  # The notes of Hypothesis follow.
    failure = failure_in(report)
    if failure is None and verdict == "fail":  # An error outside the tests, as in a plugin.
        failure = Failure("error", (), report.longreprtext)
    fields: dict[str, Any] = {"reason": reason, "declared": property_of(report, DECLARED)}
    test, own = report.nodeid, _properties(report, CLAUSE)
    violated = _properties(report, VIOLATED) or own or [""]
    tests = [TestVerdict(test, verdict, name, failure=failure, **fields) for name in violated]
    is_stale = failure is not None and failure.is_stale
    cause = "the record of its tests is out of date:" if is_stale else "its tests fail in facts of"
    reason = f"{cause} {violated[0]}"
    others = (name for name in own if name not in violated)
    return tests + [TestVerdict(test, "not-run", name, reason, "", failure) for name in others]


@dataclass(frozen=True)
class Evidence:
    """The verdict of one clause in one run, with its evidence. A passing clause has none.

    Args:
        verdict: The verdict of the clause: the worst of its tests, by their `rank`.
        reason: Why the clause is not offered or was not run, or the clause that its tests fail.
        failure: The failure, also of an undecided clause; None for a run of an earlier suite.
        test: A test with the verdict of the clause, if possible one with a smallest failing call.
        others: The number of other tests with the same verdict.
        declared: A missing name, if ``lacks`` of the register declares all that the tests use.
        keys: For each test with the verdict of the clause: the key of its failure. A published
            run has none.
    """

    verdict: Verdict
    reason: str = ""
    failure: Failure | None = None
    test: str = ""
    others: int = 0
    declared: str = ""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @property
    def is_undecided(self) -> bool:
        """Whether tests of the clause fail in facts of other clauses only."""
        return self.verdict == "not-run" and self.failure is not None and not self.is_stale

    @property
    def is_stale(self) -> bool:
        """Whether the tests pass, and the clause fails, or is not decided, because of a record."""
        return self.failure is not None and self.failure.is_stale


def worst(tests: Iterable[TestVerdict]) -> list[TestVerdict]:
    """Return the tests of a clause that have its verdict: the worst one, by their `rank`."""
    ranked = sorted(tests, key=lambda test: test.rank)
    return [test for test in ranked if test.rank == ranked[0].rank]


def find_evidence(tests: Iterable[TestVerdict]) -> dict[str, Evidence]:
    """Return the verdict of each clause with its evidence, from the tests of a run."""
    tests_of_clause: dict[str, list[TestVerdict]] = {}
    for test in tests:
        if test.clause:
            tests_of_clause.setdefault(test.clause, []).append(test)
    return {name: _make_evidence(tests_of_clause[name]) for name in sorted(tests_of_clause)}


def _make_evidence(tests: Sequence[TestVerdict]) -> Evidence:
    """Return the evidence of the tests of one clause: that of its worst tests."""
    found = worst(tests)
    if found[0].verdict == "pass":
        return Evidence("pass")
    first = min(
        found,
        key=lambda test: (
            bool(test.declared),
            not test.failure,
            not (test.failure and test.failure.call),
            test.test,  # With workers, the order of the tests in a file differs from run to run.
        ),
    )
    others = len(found) - 1
    if first.verdict == "not-offered":
        reason = first.failure.text if first.failure else first.reason
        return Evidence(first.verdict, reason, None, first.test, others, first.declared)
    keys = {test.test: test.failure.key for test in found if test.failure}
    return Evidence(first.verdict, first.reason, first.failure, first.test, others, keys=keys)
