"""A call of parallel_apply on modules that take no argument, and a module that is a function."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


class Lambda(nn.Module):
    """A module that calls a function with given arguments."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__()
        self.function = function
        self.args = args

    def forward(self) -> Any:
        """Return the result of the function."""
        return self.function(*self.args)


def run(target: Target, topology: Topology, modules: Sequence[nn.Module]) -> list[Any]:
    """Call parallel_apply on ``modules`` without arguments. Module ``i`` runs on device ``i``."""
    no_arguments: list[tuple[()]] = [()] * len(modules)
    devices = [device.index for device in topology.take(len(modules))]
    results: list[Any] = target.parallel_apply.parallel_apply(
        list(modules), no_arguments, devices=devices
    )
    return results
