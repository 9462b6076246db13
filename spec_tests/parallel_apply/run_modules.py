"""A call of parallel_apply on modules that take no argument."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


def run(target: Target, topology: Topology, modules: Sequence[nn.Module]) -> list[Any]:
    """Call parallel_apply on ``modules`` without arguments. Module ``i`` runs on device ``i``."""
    no_arguments: list[tuple[()]] = [()] * len(modules)
    devices = [device.index for device in topology.take(len(modules))]
    results: list[Any] = target.parallel_apply.parallel_apply(
        list(modules), no_arguments, devices=devices
    )
    return results
