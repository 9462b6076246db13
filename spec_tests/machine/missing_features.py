"""Skips failed tests that use a feature or operator that the devices lack.

If the target uses the feature or operator, the test fails.
"""

import os
import re
import sys
from traceback import walk_tb
from types import TracebackType

import pytest

from spec_tests.machine.capabilities import Capabilities, in_use
from spec_tests.machine.topology import MODULES

#: PyTorch's error for an operator that the back end lacks. The groups are the operator and
#: the back end.
_OPERATOR = re.compile(r"Could not run '([^']+)' with arguments from the '([^']+)' backend")
#: Libraries. A frame of a library does not tell whether the suite or the target made a call.
_LIBRARIES = {"torch", "_pytest", "pytest", "hypothesis", "numpy", *sys.stdlib_module_names}


def skip_missing(
    call: pytest.CallInfo[None], report: pytest.TestReport, target: str, tests: str = "spec_tests"
) -> bool:
    """Skip a failed test whose error says that the devices lack a feature.

    The test fails nevertheless if the target itself uses the feature.

    Args:
        call: The call of a test.
        report: The report of this call, which is changed.
        target: The name of the target.
        tests: The package of the test, if it is not the suite.

    Returns:
        Whether the test was skipped.
    """
    offered = in_use()
    if not report.failed or call.excinfo is None or offered is None:
        return False
    missing = find_missing(call.excinfo.value, offered, target, tests)
    if missing is not None:
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, line or 0, f"Skipped: not-run: the devices lack {missing}")
    return missing is not None


def find_missing(
    error: BaseException, offered: Capabilities, target: str, tests: str = "spec_tests"
) -> str | None:
    """Return the missing feature or operator that the tests used; None for any other error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).partition("\n")[0]
    operator = _OPERATOR.search(text)
    # An error about another back end, such as Meta, is an error of the target.
    accelerator = offered.topology.accelerator
    if operator and operator[2].lower() in (accelerator, f"sparse{accelerator}"):
        missing: str | None = operator[1]
    else:
        missing = offered.errors.get(text)
    return missing if _is_raised_by_tests(error.__traceback__, target, tests) else None


def _is_raised_by_tests(traceback: TracebackType | None, target: str, tests: str) -> bool:
    """Return whether the innermost frame outside the libraries is one of tests or suite."""
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(traceback)]
    own = [name for name in names if _is_below(name, target) or not _is_library(name)]
    return bool(own) and any(_is_below(own[-1], name) for name in ("spec_tests", tests))


def _is_library(name: str) -> bool:
    """Return whether a module belongs to a library, or to a back end that is written in Python."""
    back_ends = os.environ.get(MODULES, "").split(",")
    package = name.partition(".")[0]
    return package in _LIBRARIES or any(package == each.partition(".")[0] for each in back_ends)


def _is_below(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")
