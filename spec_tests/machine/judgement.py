"""Sets the outcome of a test, and describes failures."""

from collections.abc import Generator

import pytest

from spec_tests.machine import (
    failed_test,
    failure_report,
    known_failures,
    missing_features,
    not_offered,
    run_metadata,
)
from spec_tests.machine.options import target_of


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Set the outcome of a test whose failure the register records, and describe failures."""
    failure_report.show_first_failure(call)
    failure_report.cut_tracebacks(call)
    try:
        report = yield
        _judge(item, call, report)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        report = _without_details(item, call, other)
    return report


def _without_details(
    item: pytest.Item, call: pytest.CallInfo[None], other: BaseException
) -> pytest.TestReport:
    """Return the report of a failed test whose error raised ``other`` when it was shown."""
    text = f"the failure cannot be shown: {type(other).__name__}"

    def fail() -> None:
        raise AssertionError(text) from None  # The error that is handled cannot be shown.

    shown = pytest.CallInfo.from_call(fail, call.when)
    report = pytest.TestReport.from_item_and_call(item, shown)
    report.user_properties.append(("difference", text))
    return report


def _judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    if not (
        not_offered.skip_declared(item, call, report)
        or missing_features.skip_missing(call, report, target_of(item.config))
    ):
        known_failures.match_records(item, call, report)
        if report.failed or hasattr(report, "wasxfail"):
            report.user_properties.extend(failure_report.describe(item, call))
            failed_test.add_program(item, call, report, run_metadata.options(item.config))
