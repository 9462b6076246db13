"""What DataParallel costs above the module's own time, and how much memory it needs.

Wall time on the host, from the call until every device is idle; `module` is the plain module on
one device, the floor. Peak memory is the devices' own count over one forward and backward.
"""

import pytest
import torch

from spec_tests.harness.target import Target
from spec_tests.harness.topology import not_run

from .libraries import LIBRARIES
from .models import WIDTH, blocks

DEVICES = 4
BATCH = 64
BLOCKS = 100
WITH_FLOOR = pytest.mark.parametrize("library", ["module", *LIBRARIES])


def _wrapped(library, topology, count=BLOCKS, width=WIDTH):
    # As many as the run names; one that is named once stands for four.
    named = len(topology.devices)
    devices = topology.take(named if named > 1 else DEVICES)
    module = blocks(count, width).to(devices[0])
    x = torch.randn(BATCH, width, device=devices[0])
    if library == "module":
        return module, x
    return Target(LIBRARIES[library]).data_parallel.DataParallel(module, devices), x


@WITH_FLOOR
def bench_forward(timed, benchmark, library, topology):
    benchmark.group = f"DataParallel forward blocks={BLOCKS}"
    module, x = _wrapped(library, topology)

    y = timed(module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_FLOOR
def bench_forward_backward(timed, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward blocks={BLOCKS}"
    module, x = _wrapped(library, topology)

    timed(_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("library", list(LIBRARIES))
def bench_peak_memory(timed, benchmark, library, topology):
    benchmark.group = "DataParallel peak memory blocks=20 width=256"
    module, x = _wrapped(library, topology, count=20, width=256)
    _step(module, x)
    benchmark.extra_info["peak_bytes"] = _peak(topology, module, x)

    timed(_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


def _step(module, x):
    module.zero_grad()
    module(x).sum().backward()


def _peak(topology, module, x):
    memory = getattr(torch, topology.accelerator)
    if not hasattr(memory, "reset_peak_memory_stats"):
        not_run(f"torch.{topology.accelerator} does not count memory")
    for device in set(topology.devices):
        memory.reset_peak_memory_stats(device)
    _step(module, x)
    topology.synchronize()
    return sum(memory.max_memory_allocated(device) for device in set(topology.devices))
