"""The implementations, and the simulated devices."""

import gc
import importlib
import os
import random
from pathlib import Path

import torch

from impl_tests.wrong import Perturbation, state
from spec_tests import cuda_stand_ins, simulator
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import SIMULATED_DEVICES, Topology

from .draws import MODULE_CALLS, TRANSFERS, draw

__all__ = ["ORACLE", "TOPOLOGY", "perturb", "prepare"]

#: The implementation that computes the expected results.
ORACLE = Target("spec_tests.oracle")
#: The simulated devices.
TOPOLOGY = Topology("sim", tuple(range(SIMULATED_DEVICES)))


def prepare(name: str) -> Target:
    """Import a target and register the devices. Use no device, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(SIMULATED_DEVICES)
    cuda_stand_ins.enable()
    target = Target(name)
    importlib.import_module(
        "torch.fx.experimental.symbolic_shapes"
    )  # The first backward needs it.
    # The first draws of Hypothesis are slow.
    for strategy in (*MODULE_CALLS.values(), *TRANSFERS.values()):
        draw(strategy, random.Random(0))
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()
    return target


def perturb(line: str, folder: Path) -> str:
    """Change the behaviour of a public function of impl. Return the name of the changed target.

    Args:
        line: The function, the kind and the guard of a perturbation.
        folder: A folder for the file from which processes read the perturbation.
    """
    os.environ[state.FUNCTIONS] = Perturbation.parse(line).function
    os.environ[state.FILE] = str(folder / "perturbation")
    state.set_active(line)
    return "impl_tests.wrong.target"
