"""Whole runs of the suite, of which there are many here, as a fixture."""

from collections.abc import Iterator

import pytest

from spec_tests.meta_tests.fork_server import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts ``python -m MODULE`` in a process of its own, which need not import torch first."""
    found = ForkServer()
    yield found
    found.close()
