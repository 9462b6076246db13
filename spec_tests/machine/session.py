"""Prepares a run: filters warnings, imports the target, and collects the header and metadata."""

import datetime
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from spec_tests.machine import clauses, process_state, register, verdict_file
from spec_tests.machine.devices import SYNCHRONOUS, WARNINGS_OF_BUILD, Topology
from spec_tests.machine.fixtures import (
    capabilities_of,
    reason_without_reference,
    register_of,
    topology_of,
)
from spec_tests.machine.options import (
    NO_REFERENCE,
    command,
    map_options,
    mapping_of,
    suite_of,
    target_of,
)
from spec_tests.machine.target import REFERENCE, require_target
from spec_tests.machine.verdicts import TestVerdict

#: Filters of warnings. A warning that no filter ignores is an error.
_WARNINGS = (
    "error",
    # pytest-benchmark up to 5.2 warns before the first test if pytest-xdist is used.
    "ignore:Benchmarks are automatically disabled",
    # At the first failure Hypothesis imports libcst, if installed, and libcst warns.
    "ignore:mypy_extensions.TypedDict is deprecated",
    # cuDNN copies the weights of a replica's recurrent layer in each call:
    # https://github.com/allenai/allennlp/issues/2793.
    "ignore:RNN module weights are not part of single contiguous chunk",
    *map("ignore:{}".format, WARNINGS_OF_BUILD),
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Configure warnings, the marker ``clause`` and the `verdict_file.Recorder`."""
    # The filters of the user come later in the list and override these.
    config.getini("filterwarnings")[:0] = _WARNINGS
    config.addinivalue_line(
        "markers", "clause(id): the clause of clauses.toml that the test checks"
    )
    # pytest-timeout reads the option later; see `time_limit`.
    config.option.timeout_method = config.option.timeout_method or "thread"
    if hasattr(config, "workerinput"):
        # Ctrl-C ends a worker of pytest-xdist at once. The test may catch KeyboardInterrupt.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    else:
        file = config.getoption("--verdicts")
        recorder = verdict_file.Recorder(
            None if file is None else Path(file),
            clauses.of_run(config),
            resume=_keeps_verdict(config) if config.getoption("--resume") else None,
            metadata=lambda: _metadata(config, topology_of(config)),
        )
        config.pluginmanager.register(recorder, "recorder")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the target, after the accelerator is enabled. Refuse devices that do not work.

    A run that only collects tests imports no target.
    """
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    name, mapping = target_of(config), mapping_of(config)
    capabilities_of(config)
    target = require_target(name, mapping)
    if (path := register_of(config)) is not None:
        register.require_missing(register.load_lacks(path), target, path)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return lines with target, reference, devices, PyTorch and Python."""
    topology, reason = topology_of(config), reason_without_reference(config)
    is_asynchronous = capabilities_of(config).offers("asynchronous-operators")
    return [
        " ".join([f"target: {target_of(config)}", *map_options(config)]),
        *([f"register: {path}"] if (path := register_of(config)) else []),
        *_run_again(config),
        f"reference: {f'{NO_REFERENCE}, because {reason}' if reason else REFERENCE}",
        f"devices: {', '.join(map(str, topology.devices))} (--accelerator {topology.accelerator})",
        f"features: {capabilities_of(config).summary()}",
        *device_faults(config),
        *([] if is_asynchronous else [f"order: {SYNCHRONOUS}"]),
        f"suite: {clauses.suite_version(clauses.of_run(config))}",
        f"torch: {torch.__version__}",
        f"python: {process_state.python_version()}",
    ]


def _keeps_verdict(config: pytest.Config) -> Callable[[TestVerdict], bool]:
    """Return a function that returns whether the register leaves a verdict as it is."""
    path = register_of(config)
    if path is None:
        return lambda test: register.keeps([], [], test)
    records = register.load(path, folder=suite_of(config) / "registers")
    lacks = register.load_lacks(path)
    return lambda test: register.keeps(records, lacks, test)


def _run_again(config: pytest.Config) -> list[str]:
    """Return a line if a resumed run runs tests again."""
    recorder: Any = config.pluginmanager.get_plugin("recorder")
    count = len(recorder.outdated) if recorder else 0  # A worker has none.
    return [f"tests that run again, because the register has changed: {count}"] if count else []


def device_faults(config: pytest.Config) -> list[str]:
    """Return a line for each clause about the devices that they violate."""
    text = "devices: {0.name}: {0.state}: {0.text}; a failure may be a fault of the devices"
    return [*map(text.format, capabilities_of(config).broken)]


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


def _metadata(config: pytest.Config, topology: Topology) -> dict[str, Any]:
    """Return target, versions, devices, time, and the command that repeats the run."""
    target = target_of(config)
    return {
        "format": verdict_file.FORMAT,
        "target": target,
        "version": _package_version(target.partition(".")[0]),
        "reference": NO_REFERENCE if reason_without_reference(config) else REFERENCE,
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
        "suite": clauses.suite_version(clauses.of_run(config)),
        **({"clauses": config.getoption("--clause")} if config.getoption("--clause") else {}),
    }


def _package_version(package: str) -> str:
    """Return ``__version__`` of a package, else the version of its distribution, else ''."""
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is not None:
        return str(version)
    names = metadata.packages_distributions().get(package, ())
    return metadata.version(names[0]) if names else ""
