"""How DataParallel grows: with modules, devices, the tensors' size, and the nesting of arguments.

Wall time on the host, from the call until every device is idle, and the devices' peak memory;
`module` is the plain module on one device. On a machine with fewer devices some stand for several.
"""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests.harness.environment.target import Target

from .libraries import LIBRARIES
from .memory import peak_bytes
from .models import WIDTH, blocks

BATCH = 64
DEVICES = 4
BLOCKS = 30
WITH_FLOOR = pytest.mark.parametrize("library", ["module", *LIBRARIES])
NUMBERS = [(count, DEVICES) for count in (10, 30, 100, 300, 1000)]
NUMBERS += [(BLOCKS, devices) for devices in (1, 2, 3, 6, 8)]


class Nested(nn.Module):
    """Weighs every tensor of a list of pairs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, pairs):
        """The pairs."""
        return [{name: x * self.weight for name, x in pair.items()} for pair in pairs]


def _on(library, topology, module, devices):
    placed = topology.take(devices)
    module = module.to(placed[0])
    if library == "module":
        return module, placed[0]
    return Target(LIBRARIES[library]).data_parallel.DataParallel(module, placed), placed[0]


def _forward(timed, benchmark, topology, module, x):
    peak = peak_bytes(topology, partial(module, x))
    if peak is not None:
        benchmark.extra_info["peak_bytes"] = peak
    return timed(module, x)


@WITH_FLOOR
@pytest.mark.parametrize(("count", "devices"), NUMBERS, ids="{}".format)
def bench_scaling(timed, benchmark, library, topology, count, devices):
    benchmark.group = f"DataParallel scaling blocks={count} devices={devices}"
    module, source = _on(library, topology, blocks(count), devices)
    x = torch.randn(BATCH, WIDTH, device=source)

    y = _forward(timed, benchmark, topology, module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_FLOOR
@pytest.mark.parametrize("width", [16, 64, 256, 1024], ids="width={}".format)
def bench_scaling_width(timed, benchmark, library, topology, width):
    benchmark.group = f"DataParallel scaling blocks=4 width={width}"
    module, source = _on(library, topology, blocks(4, width), DEVICES)
    x = torch.randn(BATCH, width, device=source)

    y = _forward(timed, benchmark, topology, module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_FLOOR
@pytest.mark.parametrize("count", [1, 10, 100, 1000], ids="pairs={}".format)
def bench_scaling_nested(timed, benchmark, library, topology, count):
    benchmark.group = f"DataParallel scaling pairs={count}"
    module, source = _on(library, topology, Nested(), DEVICES)
    pairs = [{name: torch.ones(BATCH, 4, device=source) for name in "ab"} for _ in range(count)]

    found = _forward(timed, benchmark, topology, module, pairs)

    assert len(found) == count
    assert found[-1]["b"].shape == (BATCH, 4)
    assert found[-1]["b"].device == source
