"""What DataParallel says of devices of unequal size."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

from spec_tests.harness.target import Target
from spec_tests.harness.topology import Topology
from spec_tests.strategies.calls import At, build


@dataclass(frozen=True)
class ImbalanceCall:
    """A new ``DataParallel`` on devices that seem to have these sizes.

    Args:
        devices: The devices.
        memory: Bytes of memory by ordinal, counted round.
        processors: Multiprocessors by ordinal, counted round.
    """

    devices: tuple[At, ...]
    memory: tuple[int, ...]
    processors: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The module and its devices."""
        devices = build(list(self.devices), topology)
        return {"module": nn.Tanh(), "device_ids": devices}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """The devices; what matters are the warnings."""
        with self._pretend(inputs["device_ids"]):
            return target.data_parallel.DataParallel(**inputs).device_ids

    def _pretend(self, devices: list[torch.device]) -> AbstractContextManager[Any]:
        module = torch.get_device_module(devices[0].type)
        return mock.patch.object(module, "get_device_properties", self._properties)

    def _properties(self, device: Any) -> SimpleNamespace:
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
    """The check alone, of devices that seem to have these sizes."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Nothing; what matters are the warnings."""
        with self._pretend(inputs["device_ids"]):
            return target.data_parallel.private("_check_balance")(inputs["device_ids"])

    def __repr__(self) -> str:
        return super().__repr__().replace("DataParallel(nn.Tanh(), ", "_check_balance(")
