"""Calls on devices that report chosen amounts of memory and cores, which may be imbalanced."""

from contextlib import AbstractContextManager
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
    """The construction of a ``DataParallel`` on devices that report patched properties.

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
        """Return the module and its devices."""
        devices = build(list(self.devices), topology)
        return {"module": nn.Tanh(), "device_ids": devices}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the wrapper's devices. `checks.agree` also compares the warnings."""
        with self._patch_properties(inputs["device_ids"]):
            return target.data_parallel.DataParallel(**inputs).device_ids

    def _patch_properties(self, devices: list[torch.device]) -> AbstractContextManager[Any]:
        module = torch.get_device_module(devices[0].type)
        return mock.patch.object(module, "get_device_properties", self._make_properties)

    def _make_properties(self, device: Any) -> SimpleNamespace:
        ordinal = device if isinstance(device, int) else torch.device(device).index
        return SimpleNamespace(
            name=f"device {ordinal}",
            total_memory=self.memory[ordinal % len(self.memory)],
            multi_processor_count=self.processors[ordinal % len(self.processors)],
        )

    def __repr__(self) -> str:
        return (
            f"DataParallel(nn.Tanh(), {list(self.devices)})  # where the devices have "
            f"{self.memory} bytes and {self.processors} multiprocessors"
        )


@dataclass(frozen=True, repr=False)
class BalanceCall(ImbalanceCall):
    """A call of ``_check_balance`` for devices that report patched properties."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return None. `checks.agree` also compares the warnings."""
        with self._patch_properties(inputs["device_ids"]):
            return target.data_parallel.private("_check_balance")(inputs["device_ids"])

    def __repr__(self) -> str:
        return super().__repr__().replace("DataParallel(nn.Tanh(), ", "_check_balance(")
