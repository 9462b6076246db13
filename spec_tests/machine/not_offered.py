"""Tests that use a name that the target lacks: their verdict is *not-offered*.

Such a test fails, unless the list ``lacks`` of the register declares the name: then it is skipped.
Example: ``lacks = ["replicate", "comm.scatter"]`` declares a submodule and a function.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from spec_tests.machine import input_files, verdicts
from spec_tests.machine.target import NotOffered, Target, missing_name, name_in

#: Key in the stash of the configuration for the names that the register declares.
_DECLARED = pytest.StashKey[frozenset[str]]()


def declare(config: pytest.Config, names: Iterable[str]) -> None:
    """Store the names in ``lacks`` of the register."""
    config.stash[_DECLARED] = frozenset(names)


@input_files.usage_errors()
def require_missing(names: Iterable[str], target: Target, path: Path) -> None:
    """Check that a target lacks the names that its register declares.

    Raises:
        pytest.UsageError: The target has one of the names.
    """
    for name in names:
        if target.offers(name):
            problem = f'lacks "{name}": the target has this name; remove it from the list'
            raise input_files.refuse(path, problem)


def skip_declared(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> bool:
    """Set the outcome of a test that uses a missing name.

    `NotOffered` skips a test. Without a declaration the test fails, or if it is marked xfail, its
    failure is expected.

    Returns:
        Whether the test was skipped because ``lacks`` declares the name.
    """
    missing = None if call.excinfo is None else missing_name(call.excinfo.value)
    declared = item.config.stash.get(_DECLARED, frozenset())
    if missing is not None and name_in(missing) in declared:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
        report.user_properties.append((verdicts.DECLARED, name_in(missing)))
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
