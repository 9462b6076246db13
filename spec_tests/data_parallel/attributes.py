"""A call that reads the public attributes of DataParallel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import DeviceAt, build


@dataclass(frozen=True)
class AttributesCall:
    """A call that constructs a ``DataParallel`` and returns its public attributes."""

    devices: Sequence[DeviceAt] | None
    output: DeviceAt | None
    dim: int

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "module": nn.Tanh(),
            "device_ids": build(self.devices, topology),
            "output_device": build(self.output, topology),
            "dim": self.dim,
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the public attributes by name."""
        wrapped = target.data_parallel.DataParallel(**inputs)
        names = ("module", "device_ids", "output_device", "dim", "src_device_obj")
        return {name: getattr(wrapped, name) for name in names}

    def __repr__(self) -> str:
        return f"vars(DataParallel(nn.Tanh(), {self.devices}, {self.output}, {self.dim}))"
