"""Applies ``--fault`` and ``--without``."""

from contextlib import ExitStack

import pytest
import torch

from spec_tests import simulator
from spec_tests.machine import capabilities
from spec_tests.machine.topology import Topology

#: The value of ``--without`` that names all optional features of the simulator.
ALL = "all"


def inject(config: pytest.Config, topology: Topology) -> None:
    """Inject the fault that ``--fault`` names. It stays until the run ends.

    Raises:
        pytest.UsageError: there is no such fault, or the devices are real.
    """
    name = config.getoption("--fault")
    if name is None:
        return
    if topology.accelerator != "sim":
        raise pytest.UsageError("--fault: only the simulated accelerator can inject faults")
    if name not in simulator.FAULTS:
        raise pytest.UsageError(
            f"--fault {name}: unknown fault; the faults are {', '.join(simulator.FAULTS)}"
        )
    switches = ExitStack()
    switches.enter_context(simulator.fault(name))
    config.add_cleanup(switches.close)


def switch_off(config: pytest.Config) -> None:
    """Switch off the features of the simulator that ``--without`` names.

    Call it before the devices are made. On real devices nothing is switched off; see
    `switched_off`.

    Raises:
        pytest.UsageError: there is no such feature.
    """
    names = config.getoption("--without")
    if not names or not _is_simulated(config):
        return
    try:
        simulator.switch_off(simulator.FEATURES if ALL in names else names)
    except ValueError as error:
        raise pytest.UsageError(f"--without: {error}") from None


def switched_off(config: pytest.Config) -> list[str]:
    """Return the features and dtypes that a run on real devices does not use.

    Raises:
        pytest.UsageError: there is no such feature.
    """
    names: list[str] = config.getoption("--without")
    unknown = [name for name in names if name not in capabilities.names()]
    if unknown:
        known = ", ".join(capabilities.names())
        raise pytest.UsageError(f"--without: no feature has the name {unknown[0]!r}; use {known}")
    return names


def _is_simulated(config: pytest.Config) -> bool:
    if config.getoption("--accelerator") == "auto":
        return torch.accelerator.current_accelerator(check_available=True) is None
    return bool(config.getoption("--accelerator") == "sim")
