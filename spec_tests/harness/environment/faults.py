"""Simulated devices that misbehave: all through a run with ``--fault NAME``, or in a test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from spec_tests import simulator
from spec_tests.harness.environment.topology import Topology, not_run

__all__ = ["misbehave", "without_memory"]


def misbehave(config: pytest.Config, topology: Topology) -> None:
    """Switch on the fault that the options ask for, until the run ends.

    Raises:
        pytest.UsageError: there is no such fault, or the devices are real.
    """
    name = config.getoption("--fault")
    if name is None:
        return
    if topology.accelerator != "sim":
        raise pytest.UsageError(
            "--fault: only the simulated accelerator has faults to choose from"
        )
    if name not in simulator.FAULTS:
        raise pytest.UsageError(f"--fault {name}: the faults are {', '.join(simulator.FAULTS)}")
    switches = ExitStack()
    switches.enter_context(simulator.fault(name))
    config.add_cleanup(switches.close)


@contextmanager
def without_memory(topology: Topology, slot: int) -> Iterator[None]:
    """Inside the block the device of ``slot`` has no memory left."""
    if topology.accelerator != "sim":
        not_run("only a simulated device can be told to have no memory left")
    with simulator.fault("no-memory", device=topology.device(slot).index):
        yield
