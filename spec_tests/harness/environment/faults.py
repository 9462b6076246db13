"""Faults of simulated devices: during a whole run with ``--fault NAME``, or in one test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from spec_tests import simulator
from spec_tests.harness.environment.topology import Topology, not_run

__all__ = ["fail_allocations", "inject"]


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


@contextmanager
def fail_allocations(topology: Topology, slot: int) -> Iterator[None]:
    """Make allocations on the device of ``slot`` fail inside the block."""
    if topology.accelerator != "sim":
        not_run("only the simulated accelerator can inject faults")
    with simulator.fault("no-memory", device=topology.device(slot).index):
        yield
