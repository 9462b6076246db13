"""The C++ front end as a fixture."""

from types import ModuleType

import pytest

from spec_tests.cpp_front_end import loader
from spec_tests.topology import Topology, not_run


@pytest.fixture(scope="session")
def front_end(topology: Topology) -> ModuleType:
    """``torch::nn::parallel`` with the modules of front_end.cpp; the first use compiles it.

    Where it cannot be built, tests fail on the simulator, which is built by the same compiler. On
    a real accelerator they are not run: the suite needs no compiler there.
    """
    try:
        return loader.load()
    except (RuntimeError, ImportError) as error:
        if topology.accelerator != "sim":
            not_run(str(error).partition("\n")[0])
        raise
