"""The race detector runs around the tests of this folder."""

from spec_tests.machine.race_check import pytest_runtest_call as pytest_runtest_call
from spec_tests.strategies.supported_layers import pytest_report_header as pytest_report_header
