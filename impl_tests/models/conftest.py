"""Preparation of this process: stub CUDA libraries for torchvision, and aligned copies."""

import pytest

from impl_tests.helpers.aligned_copies import align_copies
from spec_tests.cuda_stand_ins import stub_libraries
from spec_tests.machine.topology import Topology

stub_libraries.load_stubs()


@pytest.fixture(scope="session", autouse=True)
def aligned_copies(topology: Topology) -> None:
    """Align the copies that torch.nn.parallel makes, because results are compared bit for bit."""
    align_copies()
