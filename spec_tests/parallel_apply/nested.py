"""A DataParallel inside a DataParallel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


def accepts_two_devices(topology: Topology) -> bool:
    """Return whether a linear layer takes an input on another device than its weight's."""
    x, weight = (torch.ones(1, 1, device=device) for device in topology.take(2))
    try:
        nn.functional.linear(x, weight)
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class NestedDataParallelCall:
    """A call of a linear layer that is wrapped twice, each time for two devices.

    Args:
        functional: Whether the outer wrapper is the function ``data_parallel``, not the class.
    """

    functional: bool

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the layer, its input and the devices, by name."""
        devices = topology.take(2)
        module = nn.Linear(2, 1)
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
        return {
            "module": module.to(devices[0]),
            "x": torch.ones(4, 2, device=devices[0]),
            "devices": devices,
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the output of the layer in its two wrappers."""
        wrap = target.data_parallel.DataParallel
        inner = wrap(inputs["module"], inputs["devices"])
        if self.functional:
            return target.data_parallel.data_parallel(inner, inputs["x"], inputs["devices"])
        return wrap(inner, inputs["devices"])(inputs["x"])
