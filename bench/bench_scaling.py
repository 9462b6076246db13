"""DataParallel's forward with more modules, devices, tensor elements or arguments.

Times are wall times on the host, from the call until every device is idle. Peak memory is summed
over the devices. The library `module` is the module without DataParallel, on one device. If the
machine has fewer devices than a benchmark needs, it uses some of them several times.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from .memory import measure_peak_bytes
from .models import WIDTH, build_blocks

BATCH = 64
DEVICES = 4
BLOCKS = 30
#: Pairs: a number of blocks and a number of devices.
BLOCKS_AND_DEVICES = [(num_blocks, DEVICES) for num_blocks in (10, 30, 100, 300, 1000)]
BLOCKS_AND_DEVICES += [(BLOCKS, num_devices) for num_devices in (1, 2, 3, 6, 8)]


class Nested(nn.Module):
    """A module that multiplies every tensor in a list of dicts by its parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, pairs):
        """Return the products in the same list and dicts as ``pairs``."""
        return [{name: x * self.weight for name, x in pair.items()} for pair in pairs]


def _time_forward(time_in_turn, targets, topology, module, num_devices, x):
    """Time the plain module and both libraries; check that they return equal outputs."""
    devices = topology.take(num_devices)
    module = module.to(devices[0])
    x = tree_map(lambda tensor: tensor.to(devices[0]), x)
    modules = {
        library: target.data_parallel.DataParallel(module, devices)
        for library, target in targets.items()
    }
    calls = {library: partial(each, x) for library, each in {"module": module, **modules}.items()}
    peaks = {library: measure_peak_bytes(topology, call) for library, call in calls.items()}
    info = {library: {"peak_bytes": peak} for library, peak in peaks.items() if peak is not None}

    time_in_turn(calls, **info)

    shapes = {
        library: tree_map(lambda y: (y.shape, y.device), calls[library]()) for library in calls
    }
    assert all(shape == shapes["module"] for shape in shapes.values())


@pytest.mark.parametrize(("num_blocks", "num_devices"), BLOCKS_AND_DEVICES, ids="{}".format)
def bench_scaling(time_in_turn, targets, benchmark, topology, num_blocks, num_devices):
    benchmark.group = f"DataParallel scaling blocks={num_blocks} devices={num_devices}"
    x = torch.randn(BATCH, WIDTH)
    _time_forward(time_in_turn, targets, topology, build_blocks(num_blocks), num_devices, x)


@pytest.mark.parametrize("width", [16, 64, 256, 1024], ids="width={}".format)
def bench_scaling_width(time_in_turn, targets, benchmark, topology, width):
    benchmark.group = f"DataParallel scaling blocks=4 width={width}"
    x = torch.randn(BATCH, width)
    _time_forward(time_in_turn, targets, topology, build_blocks(4, width), DEVICES, x)


@pytest.mark.parametrize("num_pairs", [1, 10, 100, 1000], ids="pairs={}".format)
def bench_scaling_nested(time_in_turn, targets, benchmark, topology, num_pairs):
    benchmark.group = f"DataParallel scaling pairs={num_pairs}"
    pairs = [{name: torch.ones(BATCH, 4) for name in "ab"} for _ in range(num_pairs)]
    _time_forward(time_in_turn, targets, topology, Nested(), DEVICES, pairs)
