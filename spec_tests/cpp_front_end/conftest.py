"""The fixture `front_end`: the compiled C++ front end."""

from types import ModuleType

import pytest

from spec_tests.cpp_front_end import loader
from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.topology import Topology


@pytest.fixture(scope="session")
def front_end(topology: Topology) -> ModuleType:
    """Return the compiled extension front_end.cpp: ``torch::nn::parallel`` and test modules."""
    # In C++ a module moves to a device only with its Parameter objects.
    capabilities.require("kept-parameters")
    return loader.load_extension(topology)
