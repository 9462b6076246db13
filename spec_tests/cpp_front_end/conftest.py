"""The fixture of the C++ front end."""

from types import ModuleType

import pytest

from spec_tests.cpp_front_end import loader
from spec_tests.harness.environment.topology import Topology


@pytest.fixture(scope="session")
def front_end(topology: Topology) -> ModuleType:
    """``torch::nn::parallel`` with the modules of front_end.cpp; the first use compiles it."""
    return loader.load_for(topology)
