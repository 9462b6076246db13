"""Set-up for torchvision, which the packages import, with a CPU build of PyTorch."""

import pytest

from impl_tests import cuda_stubs
from impl_tests.aligned_copies import align_copies
from spec_tests.harness.environment.topology import Topology

cuda_stubs.load_stubs()


@pytest.fixture(scope="session", autouse=True)
def aligned_copies(topology: Topology) -> None:
    """Align the reference's copies, because results are compared bit for bit."""
    align_copies()
