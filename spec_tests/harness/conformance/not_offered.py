"""Tests that use a name that the target lacks: their verdict is *not-offered*.

Such a test fails, unless the list ``lacks`` of the register declares its clause: then it is
skipped. Example: ``lacks = ["replicate"]`` declares all clauses of the chapter ``replicate``.
"""

from collections.abc import Iterable, Mapping

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.environment.target import NotOffered, missing_name

#: Key in the stash of a test for the entry of ``lacks`` that declares the clause.
_ENTRY = pytest.StashKey[str]()


def mark(items: Iterable[pytest.Item], lacks: Mapping[str, str]) -> None:
    """Store, for each test of a declared clause, the entry of ``lacks`` that declares the clause.

    Args:
        items: The collected tests.
        lacks: For each declared clause: the entry that declares it.
    """
    for item in items:
        entries = [lacks[name] for name in clauses.clauses_of_test(item) if name in lacks]
        if entries:
            item.stash[_ENTRY] = entries[0]


def judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> bool:
    """Set the outcome of a test that uses a missing name.

    `NotOffered` skips a test. Without a declaration the test fails, or if it is marked xfail, its
    failure is expected.

    Returns:
        Whether the test was skipped because ``lacks`` declares its clause.
    """
    missing = None if call.excinfo is None else missing_name(call.excinfo.value)
    if missing is not None and _ENTRY in item.stash:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
        report.user_properties.append((verdicts.DECLARED, item.stash[_ENTRY]))
        if hasattr(report, "wasxfail"):
            del report.wasxfail
        return True
    if call.excinfo is not None and isinstance(call.excinfo.value, NotOffered):
        report.longrepr = str(call.excinfo.value)
        expected = item.get_closest_marker("xfail")
        if expected is None:
            report.outcome = "failed"
        else:
            report.wasxfail = expected.kwargs["reason"]
    return False
