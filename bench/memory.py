"""How much memory a call needs on the devices, by their own count."""

from collections.abc import Callable

import torch

from spec_tests.harness.environment.topology import Topology


def peak_bytes(topology: Topology, call: Callable[[], object]) -> int | None:
    """The sum of all devices' peaks while ``call`` runs; None where they are not counted."""
    memory = getattr(torch, topology.accelerator)
    if not hasattr(memory, "reset_peak_memory_stats"):
        return None
    for device in set(topology.devices):
        memory.reset_peak_memory_stats(device)
    call()
    topology.synchronize()
    total: int = sum(memory.max_memory_allocated(device) for device in set(topology.devices))
    return total
