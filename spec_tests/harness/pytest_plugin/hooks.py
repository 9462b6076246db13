"""Hooks and fixtures for the suite, the tests of impl and the benchmarks: devices, profiles."""

import os

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from spec_tests import cuda_stand_ins
from spec_tests.harness.concurrency import delayed_inputs
from spec_tests.harness.environment import faults, interpreter, machine_check
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology, make_topology, not_run
from spec_tests.harness.pytest_plugin.options import (
    NO_REFERENCE,
    REFERENCE,
    has_reference,
    target_of,
)
from spec_tests.harness.pytest_plugin.run_metadata import run_metadata
from spec_tests.harness.pytest_plugin.verdict_log import VerdictLog

_TOPOLOGY = pytest.StashKey[Topology]()
_WAS_OFF = not interpreter.has_lock()

# One failure for each property: for two Hypothesis raises a group, which hides both.
_COMMON = settings(
    deadline=None,
    report_multiple_bugs=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "quick", _COMMON, max_examples=25, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("report", _COMMON, max_examples=200, derandomize=True)
# For runs under a sanitizer, which slows every call down.
settings.register_profile("few", _COMMON, max_examples=5, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5000)
# A mutant need only be caught; its counterexample is not shrunk.
_CATCH = (Phase.explicit, Phase.generate)
settings.register_profile("mutants", _COMMON, max_examples=50, derandomize=True, phases=_CATCH)
settings.register_profile("mutation", _COMMON, max_examples=20, derandomize=True, phases=_CATCH)
settings.load_profile("quick")


#: A warning that no test expects is a failure.
WARNINGS = (
    "error",
    # With pytest-xdist pytest-benchmark up to 5.2 warns before any test, which ended the run.
    "ignore:Benchmarks are automatically disabled",
    # Hypothesis imports libcst, where there is one, at the first failure, to write it as a patch.
    "ignore:mypy_extensions.TypedDict is deprecated",
    *cuda_stand_ins.IGNORED_WARNINGS,
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Turn warnings into errors, register marker and verdicts, set the delay of inputs."""
    config.getini("filterwarnings")[:0] = WARNINGS  # the user's own override them
    config.addinivalue_line("markers", "clause(id): the statement of clauses.toml that it checks")
    delayed_inputs.set_delay(config.getoption("--late"))
    if not hasattr(config, "workerinput"):
        verdicts = VerdictLog(
            config.getoption("--verdicts"),
            resume=config.getoption("--resume"),
            metadata=lambda: run_metadata(config, topology_of(config)),
        )
        config.pluginmanager.register(verdicts, "verdicts")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return lines with target, reference, devices, PyTorch and Python."""
    topology = topology_of(config)
    return [
        f"target: {target_of(config)}",
        f"reference: {REFERENCE if has_reference(config) else NO_REFERENCE}",
        f"devices: {', '.join(map(str, topology.devices))} (--accelerator {topology.accelerator})",
        f"torch: {torch.__version__}",
        f"python: {interpreter.name()}",
    ]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail the test that has enabled the GIL of a free-threaded Python."""
    interpreter.check_lock(was_off=_WAS_OFF)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Enable the accelerator before the first backward of the process."""
    topology_of(session.config)


def topology_of(config: pytest.Config) -> Topology:
    """Return the devices of the run; the first call makes them."""
    if _TOPOLOGY not in config.stash:
        options = config.getoption("--accelerator"), config.getoption("--device-ids")
        config.stash[_TOPOLOGY] = make_topology(*options)
        faults.inject(config, config.stash[_TOPOLOGY])
    return config.stash[_TOPOLOGY]


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """The devices of the run, after the checks of the machine."""
    found = topology_of(request.config)
    machine_check.require_devices(found.devices)
    machine_check.require_copies(found.devices)
    return found


@pytest.fixture(scope="session")
def sim(topology: Topology) -> None:
    """The simulated accelerator; on another one the test is not run."""
    if topology.accelerator != "sim":
        not_run("tests the simulated accelerator")


@pytest.fixture(scope="session")
def reference(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """torch.nn.parallel, which runs on the devices of the topology."""
    if not has_reference(request.config):
        not_run("compares with torch.nn.parallel, and --reference is none")
    return Target(REFERENCE)


@pytest.fixture(scope="session")
def oracle(topology: Topology) -> Target:
    """The oracle: the suite's own implementation."""
    return Target("spec_tests.oracle")


@pytest.fixture(scope="session")
def answers(request: pytest.FixtureRequest, oracle: Target) -> tuple[Target, ...]:
    """The implementations to compare with: the reference, unless it is none, and the oracle."""
    if not has_reference(request.config):
        return (oracle,)
    return request.getfixturevalue("reference"), oracle
