"""The race detector runs around the tests of this folder."""

from spec_tests.machine.guards import check_races as pytest_runtest_call  # noqa: F401
from spec_tests.strategies.supported_layers import pytest_report_header as pytest_report_header
