"""Measure the devices' peak memory during a call."""

from collections.abc import Callable

import torch

from spec_tests.harness.environment.topology import Topology


def measure_peak_bytes(topology: Topology, call: Callable[[], object]) -> int | None:
    """Return the peak memory during ``call``, summed over the devices.

    Return None if the accelerator does not report its peak memory.
    """
    memory = getattr(torch, topology.accelerator)
    if not hasattr(memory, "reset_peak_memory_stats"):
        return None
    for device in set(topology.devices):
        memory.reset_peak_memory_stats(device)
    call()
    topology.synchronize()
    total: int = sum(memory.max_memory_allocated(device) for device in set(topology.devices))
    return total
