"""The implementation under test, and the simulated devices."""

import gc
from importlib import import_module
from typing import Any

import torch

from spec_tests import cuda_stand_ins, simulator

__all__ = ["Target", "prepare"]

#: The number of simulated devices.
_DEVICES = 4


class Target:
    """The modules of impl or of torch.nn.parallel. They have the same names in both packages.

    Args:
        name: The importable name of the package.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.comm: Any = import_module(f"{name}.comm")
        self.functions: Any = import_module(f"{name}._functions")
        self.scatter_gather: Any = import_module(f"{name}.scatter_gather")
        self.replicate: Any = import_module(f"{name}.replicate")
        self.parallel_apply: Any = import_module(f"{name}.parallel_apply")
        self.data_parallel: Any = import_module(f"{name}.data_parallel")


def prepare(name: str) -> Target:
    """Import a target and register the devices. Use no device, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(_DEVICES)
    cuda_stand_ins.enable()
    target = Target(name)
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()
    return target
