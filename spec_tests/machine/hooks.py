"""Hooks, fixtures and Hypothesis profiles for the suite, the tests of impl and the benchmarks."""

import datetime
import os
import platform
import re
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine

from spec_tests import cuda_stand_ins
from spec_tests.machine import (
    capabilities,
    clauses,
    devices,
    input_files,
    probes,
    process_state,
    register,
    verdicts,
)
from spec_tests.machine.devices import MODULES, SYNCHRONOUS, Topology, make_topology, not_run
from spec_tests.machine.options import (
    NO_REFERENCE,
    command,
    imported_plugins,
    map_options,
    mapping_of,
    target_of,
)
from spec_tests.machine.target import (
    PARTS,
    REFERENCE,
    Target,
    load_map,
    require_target,
)

_TOPOLOGY = pytest.StashKey[Topology]()

# The seconds in which Hypothesis looks for a smaller failing call. Its comments allow to set this.
# On a busy machine less time would end with a larger call, which may differ in more facts than a
# register records.
engine.MAX_SHRINKING_SECONDS = 5
# Without the phase `explain`, which traces every line of further calls: inside torch.compile that
# takes minutes.
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
# Report only one failure of a test. For several failures Hypothesis raises an exception group,
# whose class no record of a register expects.
_COMMON = settings(
    deadline=None,
    phases=_PHASES,
    report_multiple_bugs=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Each run draws the same examples, so its verdicts repeat, except with "fuzz" and "new".
settings.register_profile("quick", _COMMON, max_examples=25, derandomize=True)
settings.register_profile("report", _COMMON, max_examples=200, derandomize=True)
# The examples of the gate.
settings.register_profile("gate", _COMMON, max_examples=10, derandomize=True)
# Few examples for a first overview, and for devices on which tests are slow.
settings.register_profile("few", _COMMON, max_examples=5, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5000)
# Other examples in each run, for `tox -e long -- suite`.
settings.register_profile("new", _COMMON, max_examples=25)
# A run on a target with a deliberate bug only has to fail: it needs no smallest failing call.
_WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
settings.register_profile(
    "perturbations", _COMMON, max_examples=10, derandomize=True, phases=_WITHOUT_SHRINKING
)
settings.load_profile("quick")


def divide_examples(divisor: int) -> settings:
    """Return the settings with 1 / ``divisor`` of the profile's examples, but at least two."""
    profile = settings()
    return settings(profile, max_examples=max(2, profile.max_examples // divisor))


def lives(divisor: int = 1) -> settings:
    """Return the settings of a state machine: 30 lives of 12 steps; with ``fuzz``, 1,000 of 50.

    Args:
        divisor: The number of lives is divided by it, if at least 4 remain.
    """
    profile = settings()
    count = min(profile.max_examples * 6 // 5, 1000)
    steps = 50 if count == 1000 else 12
    return settings(
        profile, max_examples=max(min(count, 4), count // divisor), stateful_step_count=steps
    )


#: Filters of warnings. A warning that no filter ignores is an error.
WARNINGS = (
    "error",
    # pytest-benchmark up to 5.2 warns before the first test if pytest-xdist is used.
    "ignore:Benchmarks are automatically disabled",
    # At the first failure Hypothesis imports libcst, if installed, and libcst warns.
    "ignore:mypy_extensions.TypedDict is deprecated",
    # A back end runs an operator on the CPU: slow, but right.
    r"ignore:.*(will fall|is falling|falls) back to",
    "ignore:.*is not currently supported on the",
    # cuDNN copies the weights of a replica's recurrent layer in each call:
    # https://github.com/allenai/allennlp/issues/2793.
    "ignore:RNN module weights are not part of single contiguous chunk",
    *cuda_stand_ins.IGNORED_WARNINGS,
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Configure warnings, the marker ``clause`` and the `verdicts.Recorder`."""
    # The filters of the user come later in the list and override these.
    config.getini("filterwarnings")[:0] = WARNINGS
    config.addinivalue_line(
        "markers", "clause(id): the clause of clauses.toml that the test checks"
    )
    # pytest-timeout reads the option later; see `guards`.
    config.option.timeout_method = config.option.timeout_method or "thread"
    if hasattr(config, "workerinput"):
        # Ctrl-C ends a worker of pytest-xdist at once. The test may catch KeyboardInterrupt.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    else:
        with input_files.usage_errors():
            recorder = verdicts.Recorder(
                config.getoption("--verdicts"),
                resume=config.getoption("--resume"),
                metadata=lambda: run_metadata(config, topology_of(config)),
            )
        config.pluginmanager.register(recorder, "verdicts")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the target, after the accelerator is enabled.

    A run that only collects tests imports no target.
    """
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    name, mapping = target_of(config), mapping_of(config)
    topology_of(config)
    target = require_target(name, mapping)
    if (path := register_of(config)) is not None:
        register.require_missing(register.load_lacks(path), target, path)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return lines with target, reference, devices, PyTorch and Python."""
    topology, reason = topology_of(config), _lacks_reference(config)
    return [
        " ".join([f"target: {target_of(config)}", *map_options(config)]),
        f"reference: {f'{NO_REFERENCE}, because {reason}' if reason else REFERENCE}",
        f"devices: {', '.join(map(str, topology.devices))} (--accelerator {topology.accelerator})",
        f"features: {capabilities_of(config).summary()}",
        *_device_faults(config),
        f"suite: {clauses.suite_version(clauses.load())}",
        f"torch: {torch.__version__}",
        f"python: {process_state.python_version()}",
    ]


def _device_faults(config: pytest.Config) -> list[str]:
    """Return a line for each fault of the devices that makes verdicts wrong or missing."""
    found = capabilities_of(config)
    order = [] if found.offers("asynchronous-operators") else [f"order: {SYNCHRONOUS}"]
    text = "devices: {0.name}: {0.state}: {0.text}; a failure may be a fault of the devices"
    return [*map(text.format, found.broken), *order]


def _lacks_reference(config: pytest.Config) -> str:
    """Return why the target is not compared with torch.nn.parallel; empty if it is."""
    if config.getoption("--reference") == NO_REFERENCE:
        return "--reference is none"
    offered = capabilities_of(config)
    if all(map(offered.offers, ("new-streams", "record-stream", "autocast"))):
        return ""
    return f"{REFERENCE} needs new streams, record_stream and autocast"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Enable the accelerator now: the first backward starts threads only for known devices.

    Warnings that the checks of real devices have shown are no errors of a test. Simulated devices
    are not used here, so that the process may still fork.
    """
    topology = topology_of(session.config)
    shown = () if topology.accelerator == "sim" else capabilities_of(session.config).warnings
    for text in shown:
        pattern = re.escape(text).replace(":", ".")  # A colon would end the text of the filter.
        session.config.addinivalue_line("filterwarnings", f"ignore:{pattern}")


def run_metadata(config: pytest.Config, topology: Topology) -> dict[str, Any]:
    """Return target, versions, devices, time, and the command that repeats the run."""
    target = target_of(config)
    return {
        "format": verdicts.FORMAT,
        "target": target,
        "version": _package_version(target.partition(".")[0]),
        "reference": NO_REFERENCE if _lacks_reference(config) else REFERENCE,
        "torch": str(torch.__version__),
        "python": process_state.python_version(),
        "accelerator": topology.accelerator,
        "devices": [str(device) for device in topology.devices],
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "examples": settings.default.max_examples if settings.default else None,
        "command": command(config),
        "suite": clauses.suite_version(clauses.load()),
        **({"clauses": config.getoption("--clause")} if config.getoption("--clause") else {}),
    }


def _package_version(package: str) -> str:
    """Return ``__version__`` of a package, else the version of its distribution, else ''."""
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is not None:
        return str(version)
    names = metadata.packages_distributions().get(package, ())
    return metadata.version(names[0]) if names else ""


def topology_of(config: pytest.Config) -> Topology:
    """Return the devices of the run. The first call enables the accelerator."""
    if _TOPOLOGY not in config.stash:
        devices.switch_off(config)
        os.environ[MODULES] = ",".join(imported_plugins(config))
        options = config.getoption("--accelerator"), config.getoption("--device-ids")
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        probes.say = terminal.write_line if terminal is not None else str
        config.stash[_TOPOLOGY] = make_topology(*options, probes.say)
        devices.inject(config, config.stash[_TOPOLOGY])
    return config.stash[_TOPOLOGY]


def register_of(config: pytest.Config) -> Path | None:
    """Return the register of the target, if it has one."""
    return register.path_of(target_of(config), config.getoption("--divergences"))


def capabilities_of(config: pytest.Config) -> capabilities.Capabilities:
    """Return what the devices of the run offer."""
    topology = topology_of(config)
    without = capabilities.switched_off(config) if topology.accelerator != "sim" else ()
    return capabilities.find(topology, frozenset(without))


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
    if reason := _lacks_reference(request.config):
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
    if _lacks_reference(request.config):
        return (oracle,)
    return request.getfixturevalue("reference"), oracle


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    return Target(target_of(request.config), load_map(mapping_of(request.config), PARTS))
