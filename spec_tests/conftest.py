"""The layers of a run: the header names them, and they are tried before workers start."""

from typing import Any

import pytest

from spec_tests.machine.fixtures import topology_of
from spec_tests.strategies.supported_layers import find_errors


def pytest_report_header(config: pytest.Config) -> str:
    """Return a line with the layers that are not drawn."""
    missing = find_errors(topology_of(config))
    return f"layers: all except {', '.join(missing)}" if missing else "layers: all"


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_configure_node(node: Any) -> None:
    """Try the layers on real devices before a worker starts: it gets all findings."""
    if topology_of(node.config).accelerator != "sim":
        find_errors(topology_of(node.config))
