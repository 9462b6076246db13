"""The metadata of a run: the first line of a file of verdicts."""

import datetime
import os
import platform
import shlex
import sys
from importlib import metadata
from typing import Any

import pytest
import torch
from hypothesis import settings

from spec_tests.machine import clauses, interpreter, record
from spec_tests.machine.devices import Topology
from spec_tests.machine.options import (
    imported_plugins,
    mapping_of,
    target_of,
)
from spec_tests.machine.target import REFERENCE


def run_metadata(config: pytest.Config, topology: Topology) -> dict[str, Any]:
    """Return target, versions, devices, time, and the command that repeats the run."""
    target = target_of(config)
    return {
        "format": record.FORMAT,
        "target": target,
        "version": _package_version(target.partition(".")[0]),
        "reference": config.getoption("--reference") or REFERENCE,
        "torch": str(torch.__version__),
        "python": interpreter.python_version(),
        "accelerator": topology.accelerator,
        "devices": [str(device) for device in topology.devices],
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "examples": settings.default.max_examples if settings.default else None,
        "command": command(config),
        "suite": clauses.suite_version(clauses.load()),
        **({"clauses": names} if (names := config.getoption("--clause")) else {}),
    }


def command(config: pytest.Config, clause: str | None = None, test: str = "") -> str:
    """Return the command that repeats this run, or one test of it.

    The command has the run's target, devices, their features and faults, clauses, reference,
    register, number of examples and filters of warnings.

    Args:
        config: The configuration of pytest.
        clause: The id of a clause in place of those of the run.
        test: The name of a test's function.
    """
    clauses_given = [clause] if clause else config.getoption("--clause")
    given = [*_given(config, "divergences"), *_target_options(config)]
    given += [f"--clause={name}" for name in clauses_given]
    passed_on = [*_device_options(config), *_given(config, "hypothesis-profile")]
    passed_on += [f"-W{text}" for text in config.getoption("pythonwarnings") or ()]
    passed_on += ["-k", test] if test else []
    given += ["--", *passed_on] if passed_on else []
    return shlex.join(["parallel-conformance", "run", target_of(config), *given])


def options(config: pytest.Config) -> list[str]:
    """Return the options of pytest that run a test with the target and the devices of this run."""
    return [
        f"--target={target_of(config)}",
        *_target_options(config),
        *_device_options(config),
    ]


def _target_options(config: pytest.Config) -> list[str]:
    mapping = [f"--target-map={each}" for each in mapping_of(config)]
    return [*_given(config, "accelerator", "device-ids", "reference"), *mapping]


def _device_options(config: pytest.Config) -> list[str]:
    found = [f"-p{name}" for name in imported_plugins(config)]
    found += [f"--without={name}" for name in config.getoption("--without")]
    return [*found, *_given(config, "fault", "late-copies")]


def _given(config: pytest.Config, *names: str) -> list[str]:
    """Return those of the options ``names`` that have a value, with the value."""
    values = {name: config.getoption(f"--{name}") for name in names}
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def _package_version(package: str) -> str:
    """Return ``__version__`` of a package, else the version of its distribution, else ''."""
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is not None:
        return str(version)
    names = metadata.packages_distributions().get(package, ())
    return metadata.version(names[0]) if names else ""
