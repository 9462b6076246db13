"""The race detector runs around the tests of this folder. The header names the layers."""

from spec_tests.machine.guards import check_races as pytest_runtest_call  # noqa: F401
from spec_tests.strategies.supported_layers import (  # noqa: F401
    pytest_configure_node,
    pytest_report_header,
)
