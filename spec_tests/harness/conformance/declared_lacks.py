"""The list ``lacks`` of a register. It declares clauses whose tests use names the target lacks.

Example: ``lacks = ["replicate"]`` declares all clauses of the chapter ``replicate``.

If a test of a declared clause uses a name that the target lacks, the test is skipped.
"""

from collections.abc import Iterable, Mapping

import pytest

from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.environment.target import missing_name

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
    """Skip a test that uses a missing name, if ``lacks`` declares the clause of the test.

    Returns:
        Whether the test was skipped.
    """
    missing = None if call.excinfo is None else missing_name(call.excinfo.value)
    if missing is None or _ENTRY not in item.stash:
        return False
    report.outcome = "skipped"
    report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
    report.user_properties.append((verdicts.DECLARED, item.stash[_ENTRY]))
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    return True
