"""The devices and implementations of a run, as fixtures and for other modules."""

import os
from pathlib import Path

import pytest

from spec_tests.machine import capabilities, devices, probes, register
from spec_tests.machine.devices import BACK_ENDS, Topology, make_topology, not_run
from spec_tests.machine.input_files import in_one_line
from spec_tests.machine.options import (
    NO_REFERENCE,
    imported_plugins,
    mapping_of,
    suite_of,
    target_of,
)
from spec_tests.machine.target import REFERENCE, Target, load_map

_TOPOLOGY = pytest.StashKey[Topology]()


def topology_of(config: pytest.Config) -> Topology:
    """Return the devices of the run. The first call enables the accelerator.

    Raises:
        pytest.UsageError: an option is wrong, or the back end raises an error.
    """
    if _TOPOLOGY not in config.stash:
        os.environ[BACK_ENDS] = ",".join(imported_plugins(config))
        options = config.getoption("--accelerator"), config.getoption("--device-ids")
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        probes.say = terminal.write_line if terminal is not None else str
        try:
            devices.switch_off(config)
            config.stash[_TOPOLOGY] = make_topology(*options, probes.say)
        except pytest.UsageError:
            raise
        except Exception as error:  # the code of a back end may raise any error
            text = in_one_line(f"{type(error).__name__}: {error}")
            raise pytest.UsageError(f"--accelerator {options[0]}: {text}") from error
        devices.inject(config, config.stash[_TOPOLOGY])
    return config.stash[_TOPOLOGY]


def register_of(config: pytest.Config) -> Path | None:
    """Return the register of the target, if it has one."""
    folder = suite_of(config) / "registers"
    return register.path_of(target_of(config), config.getoption("--divergences"), folder)


def capabilities_of(config: pytest.Config) -> capabilities.Capabilities:
    """Return what the devices of the run offer."""
    topology = topology_of(config)
    without = capabilities.switched_off(config) if topology.accelerator != "sim" else ()
    return capabilities.find(topology, frozenset(without))


def reason_without_reference(config: pytest.Config) -> str:
    """Return why the target is not compared with torch.nn.parallel; empty if it is."""
    if config.getoption("--reference") == NO_REFERENCE:
        return "--reference is none"
    offered = capabilities_of(config)
    if all(map(offered.offers, ("new-streams", "record-stream", "autocast"))):
        return ""
    return f"{REFERENCE} needs new streams, record_stream and autocast"


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """The devices of the run. Strategies draw the features that they offer."""
    capabilities.use(capabilities_of(request.config))
    return topology_of(request.config)


@pytest.fixture(scope="session")
def sim(topology: Topology) -> None:
    """Ends a test as not-run if the accelerator is not the simulator."""
    if topology.accelerator != "sim":
        not_run("tests the simulated accelerator")


@pytest.fixture(scope="session")
def reference(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """torch.nn.parallel. The test is not-run if the run has no reference."""
    if reason := reason_without_reference(request.config):
        not_run(f"compares with {REFERENCE}, but {reason}")
    return Target(REFERENCE)


@pytest.fixture(scope="session")
def oracle(topology: Topology) -> Target:
    """The oracle: a simple implementation of torch.nn.parallel in this suite."""
    return Target("spec_tests.oracle")


@pytest.fixture(scope="session")
def baselines(request: pytest.FixtureRequest, oracle: Target) -> tuple[Target, ...]:
    """The implementations that the target is compared with.

    They are the oracle, and the reference if it can run.
    """
    if reason_without_reference(request.config):
        return (oracle,)
    return request.getfixturevalue("reference"), oracle


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    return Target(target_of(request.config), load_map(mapping_of(request.config)))
