"""Calls on devices that report chosen amounts of memory and cores, which may be imbalanced."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import DeviceAt, build


@dataclass(frozen=True)
class ImbalanceCall:
    """The construction of a ``DataParallel`` on devices that report other properties.

    Args:
        devices: The devices.
        memory: The device with ordinal i reports ``memory[i % len(memory)]`` bytes.
        processors: The device with ordinal i reports ``processors[i % len(processors)]``
            multiprocessors.
    """

    devices: tuple[DeviceAt, ...]
    memory: tuple[int, ...]
    processors: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the devices."""
        return {"devices": build(list(self.devices), topology)}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the result of `call`. `checks.agree` also compares the warnings."""
        module = torch.get_device_module(inputs["devices"][0].type)
        with mock.patch.object(module, "get_device_properties", self._properties):
            return self.call(target, inputs["devices"])

    def call(self, target: Target, devices: list[torch.device]) -> Any:
        """Return the devices of a new wrapper."""
        return target.data_parallel.DataParallel(nn.Tanh(), devices).device_ids

    def _properties(self, device: Any) -> SimpleNamespace:
        ordinal = device if isinstance(device, int) else torch.device(device).index
        return SimpleNamespace(
            name=f"device {ordinal}",
            total_memory=self.memory[ordinal % len(self.memory)],
            multi_processor_count=self.processors[ordinal % len(self.processors)],
        )


class BalanceCall(ImbalanceCall):
    """A call of ``_check_balance`` for devices that report other properties."""

    def call(self, target: Target, devices: list[torch.device]) -> Any:
        """Return None."""
        return target.data_parallel.private("_check_balance")(devices)
