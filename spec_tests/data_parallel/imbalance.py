"""Devices that report chosen amounts of memory and cores, which may be imbalanced."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from spec_tests.harness.environment.topology import Topology


def reported(
    topology: Topology, memory: Sequence[int], processors: Sequence[int]
) -> AbstractContextManager[Any]:
    """Return a block in which the devices report other properties.

    The device with ordinal i reports ``memory[i % len(memory)]`` bytes and
    ``processors[i % len(processors)]`` multiprocessors.
    """

    def properties(device: Any) -> SimpleNamespace:
        ordinal = device if isinstance(device, int) else torch.device(device).index
        return SimpleNamespace(
            name=f"device {ordinal}",
            total_memory=memory[ordinal % len(memory)],
            multi_processor_count=processors[ordinal % len(processors)],
        )

    module = torch.get_device_module(topology.accelerator)
    return mock.patch.object(module, "get_device_properties", properties)
