"""Options, devices, the two libraries, and a clock that waits for the devices."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest
import torch

from spec_tests import reference
from spec_tests.options import add_device_options
from spec_tests.target import Target
from spec_tests.topology import Topology, make_topology

from .libraries import LIBRARIES

_TOPOLOGY = pytest.StashKey[Topology]()
P = ParamSpec("P")
R = TypeVar("R")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite that say where to run."""
    add_device_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Make the devices before anything is timed."""
    options = config.getoption("--accelerator"), config.getoption("--device-ids")
    config.stash[_TOPOLOGY] = make_topology(*options)
    if config.stash[_TOPOLOGY].accelerator == "sim":
        # Replicas' threads and OpenMP's would fight for the same cores, at random.
        torch.set_num_threads(1)
    for line in reference.IGNORED_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the devices and the versions."""
    return [f"devices: {config.stash[_TOPOLOGY]}", f"torch: {torch.__version__}"]


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Record what a comparison of saved runs must find equal."""
    topology = config.stash[_TOPOLOGY]
    machine_info["torch"] = torch.__version__
    machine_info["devices"] = [str(device) for device in topology.devices]
    machine_info["threads"] = torch.get_num_threads()
    if topology.accelerator == "cuda":
        machine_info["gpu"] = torch.cuda.get_device_name(topology.devices[0])
        machine_info["cuda"] = torch.version.cuda


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """The devices of the run."""
    return request.config.stash[_TOPOLOGY]


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Target:
    """The library that a benchmark times, by the name of its parameter."""
    return Target(LIBRARIES[request.param])


@pytest.fixture
def timed(
    benchmark: Any, topology: Topology, request: pytest.FixtureRequest
) -> Callable[..., Any]:
    """Time a call until every device is idle; note the library for ``bench.compare``.

    Calling the fixture's value with a function and its arguments gives the result of the last
    timed call.
    """
    benchmark.extra_info["library"] = request.node.callspec.params["library"]
    benchmark.extra_info["devices"] = [str(device) for device in topology.devices]

    def run(function: Callable[..., Any], *args: Any) -> Any:
        return benchmark(synchronised(function, topology), *args)

    return run


def synchronised(function: Callable[P, R], topology: Topology) -> Callable[P, R]:
    """``function``, then a wait for the devices: accelerators queue work and return."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        topology.synchronize()
        return result

    return call
