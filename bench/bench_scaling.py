"""How DataParallel's forward grows with the module's size and with the number of devices.

Wall time on the host, from the call until every device is idle; `module` is the plain module on
one device. Each size is timed on four devices, each number of devices with 30 blocks.
"""

import pytest
import torch

from spec_tests.harness.target import Target

from .libraries import LIBRARIES
from .models import WIDTH, blocks

BATCH = 64
SIZES = [(10, 4), (30, 4), (100, 4), (30, 1), (30, 2)]


@pytest.mark.parametrize("library", ["module", *LIBRARIES])
@pytest.mark.parametrize(("count", "devices"), SIZES, ids="{}".format)
def bench_scaling(timed, benchmark, library, topology, count, devices):
    benchmark.group = f"DataParallel scaling blocks={count} devices={devices}"
    places = topology.take(devices)
    module = blocks(count).to(places[0])
    x = torch.randn(BATCH, WIDTH, device=places[0])
    if library != "module":
        module = Target(LIBRARIES[library]).data_parallel.DataParallel(module, places)

    y = timed(module, x)

    assert y.shape == x.shape
    assert y.device == x.device
