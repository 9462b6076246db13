"""parallel_apply on modules that take no argument."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


def run(target: Target, topology: Topology, modules: Sequence[nn.Module]) -> list[Any]:
    """Run each of ``modules`` without arguments on the device of its slot."""
    nothing: list[tuple[()]] = [()] * len(modules)
    devices = [device.index for device in topology.take(len(modules))]
    results: list[Any] = target.parallel_apply.parallel_apply(
        list(modules), nothing, devices=devices
    )
    return results
