"""What the tests of the suite share."""

import pytest

from spec_tests.topology import Topology, not_run


@pytest.fixture(scope="session")
def sim(topology: Topology) -> None:
    """The simulated accelerator, which a run on another one cannot test."""
    if topology.accelerator != "sim":
        not_run("tests the simulated accelerator")
