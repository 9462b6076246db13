"""The fixture ``wrap``."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


@pytest.fixture(scope="session")
def wrap(target: Target, topology: Topology) -> Callable[..., Callable[..., Any]]:
    """A function that returns a callable which runs a module on the devices ``slots``.

    ``slots`` are the numbers of the devices in the topology, None for the CPU, or their count.
    If ``entry_point`` is "class", the callable is a DataParallel. If it is "function", the
    callable calls the function data_parallel. ``options`` are further arguments of both.
    """

    def wrapped(
        module: nn.Module, slots: Any, entry_point: str = "class", **options: Any
    ) -> Callable[..., Any]:
        devices, parallel = topology.take(slots), target.data_parallel
        if entry_point == "function":
            return lambda x: parallel.data_parallel(module, x, devices, **options)
        wrapper: Callable[..., Any] = parallel.DataParallel(module, devices, **options)
        return wrapper

    return wrapped
