"""DataParallel's forward with more modules, devices, tensor elements or arguments.

Times are wall times on the host, from the call until every device is idle. Peak memory is summed
over the devices. The library `module` is the module without DataParallel, on one device. If the
machine has fewer devices than a benchmark needs, it uses some of them several times.
"""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests.harness.environment.target import Target

from .libraries import LIBRARIES
from .memory import measure_peak_bytes
from .models import WIDTH, build_blocks

BATCH = 64
DEVICES = 4
BLOCKS = 30
WITH_MODULE = pytest.mark.parametrize("library", ["module", *LIBRARIES])
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


def _wrap(library, topology, module, num_devices):
    devices = topology.take(num_devices)
    module = module.to(devices[0])
    if library == "module":
        return module, devices[0]
    return Target(LIBRARIES[library]).data_parallel.DataParallel(module, devices), devices[0]


def _time_forward(time_call, benchmark, topology, module, x):
    peak = measure_peak_bytes(topology, partial(module, x))
    if peak is not None:
        benchmark.extra_info["peak_bytes"] = peak
    return time_call(module, x)


@WITH_MODULE
@pytest.mark.parametrize(("num_blocks", "num_devices"), BLOCKS_AND_DEVICES, ids="{}".format)
def bench_scaling(time_call, benchmark, library, topology, num_blocks, num_devices):
    benchmark.group = f"DataParallel scaling blocks={num_blocks} devices={num_devices}"
    module, device = _wrap(library, topology, build_blocks(num_blocks), num_devices)
    x = torch.randn(BATCH, WIDTH, device=device)

    y = _time_forward(time_call, benchmark, topology, module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_MODULE
@pytest.mark.parametrize("width", [16, 64, 256, 1024], ids="width={}".format)
def bench_scaling_width(time_call, benchmark, library, topology, width):
    benchmark.group = f"DataParallel scaling blocks=4 width={width}"
    module, device = _wrap(library, topology, build_blocks(4, width), DEVICES)
    x = torch.randn(BATCH, width, device=device)

    y = _time_forward(time_call, benchmark, topology, module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_MODULE
@pytest.mark.parametrize("num_pairs", [1, 10, 100, 1000], ids="pairs={}".format)
def bench_scaling_nested(time_call, benchmark, library, topology, num_pairs):
    benchmark.group = f"DataParallel scaling pairs={num_pairs}"
    module, device = _wrap(library, topology, Nested(), DEVICES)
    pairs = [
        {name: torch.ones(BATCH, 4, device=device) for name in "ab"} for _ in range(num_pairs)
    ]

    outputs = _time_forward(time_call, benchmark, topology, module, pairs)

    assert len(outputs) == num_pairs
    assert outputs[-1]["b"].shape == (BATCH, 4)
    assert outputs[-1]["b"].device == device
