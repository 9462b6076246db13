"""Ends tests as not-run that themselves use a feature or an operator that the devices lack."""

import re
from collections.abc import Iterator
from types import TracebackType

import pytest

from spec_tests.harness.environment.capabilities import Capabilities, in_use

__all__ = ["find_missing", "judge"]

_OPERATOR = re.compile(r"Could not run '([^']+)' with arguments from the")


def judge(call: pytest.CallInfo[None], report: pytest.TestReport, target: str) -> bool:
    """Skip a failed test whose error says that the devices lack a feature.

    The test fails nevertheless if the target itself uses the feature.

    Args:
        call: The call of a test.
        report: The report of this call, which is changed.
        target: The name of the target.

    Returns:
        Whether the test was skipped.
    """
    offered = in_use()
    if not report.failed or call.excinfo is None or offered is None:
        return False
    missing = find_missing(call.excinfo.value, offered, target)
    if missing is not None:
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, line or 0, f"Skipped: not-run: the devices lack {missing}")
    return missing is not None


def find_missing(error: BaseException, offered: Capabilities, target: str) -> str | None:
    """Return the missing feature or operator that the suite used; None for any other error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).partition("\n")[0]
    operator = _OPERATOR.search(text)
    missing = operator[1] if operator else offered.errors.get(text)
    return missing if _is_raised_by_suite(error.__traceback__, target) else None


def _is_raised_by_suite(traceback: TracebackType | None, target: str) -> bool:
    """Return whether the innermost frame outside PyTorch is one of the suite."""
    packages = [name.partition(".")[0] for name in _module_names(traceback)]
    own = {"spec_tests", target.partition(".")[0]} - {"torch"}
    innermost = next((name for name in reversed(packages) if name in own), None)
    return innermost == "spec_tests"


def _module_names(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next
