"""The layers of a run: they are tried before workers start, and the header names them."""

from spec_tests.strategies.supported_layers import (  # noqa: F401
    pytest_configure_node,
    pytest_report_header,
)
