"""Whole runs of the suite, of which there are many here, as a fixture."""

from collections.abc import Iterator

import pytest

from spec_tests.meta_tests.warm import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Starts ``python -m MODULE`` in a process of its own, which need not import torch first."""
    found = Warm()
    yield found
    found.close()
