"""Clauses that a target's register declares as lacking: ``lacks = ["distributed"]``.

A test of a declared clause that uses a missing name is skipped. If no test of the clause uses a
missing name, the declaration is stale and the run fails: see `stale`.
"""

from collections.abc import Iterable, Mapping

import pytest

from spec_tests.harness.conformance import clauses
from spec_tests.harness.environment.target import missing_name

__all__ = ["PROPERTY", "judge", "mark", "stale"]

#: The property of a report that holds the entry of ``lacks``.
PROPERTY = "declared"
_ENTRY = pytest.StashKey[str]()


def mark(items: Iterable[pytest.Item], lacks: Mapping[str, str]) -> None:
    """Store the entry of ``lacks`` with the tests of the clauses that it declares.

    Args:
        items: The collected tests.
        lacks: The entry that declares each clause.
    """
    for item in items:
        entries = [lacks[name] for name in clauses.clauses_of_test(item) if name in lacks]
        if entries:
            item.stash[_ENTRY] = entries[0]


def judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> bool:
    """Skip a test that uses a missing name, if the register declares its clause as lacking.

    Returns:
        Whether the test was skipped.
    """
    missing = None if call.excinfo is None else missing_name(call.excinfo.value)
    if missing is None or _ENTRY not in item.stash:
        return False
    report.outcome = "skipped"
    report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
    report.user_properties.append((PROPERTY, item.stash[_ENTRY]))
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    return True


def stale(lacks: Mapping[str, str], tests: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return declared clauses whose tests ran without a missing name, and their entries."""
    ran: dict[str, set[str]] = {}
    for test in tests:
        if test.get("clause") in lacks:
            ran.setdefault(test["clause"], set()).add(test["verdict"])
    return {
        name: lacks[name]
        for name, verdicts in sorted(ran.items())
        if "not-offered" not in verdicts and verdicts != {"not-run"}
    }
