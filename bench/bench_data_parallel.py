"""The overhead of DataParallel in time and memory, compared with the plain module.

Times are wall times on the host, from the call until every device is idle. `module` is the plain
module on one device. In the rows called "evaluation" impl caches its replicas (`hold`). In the
rows called "in turn" impl runs one replica after the other (`in_turn`). torch.nn.parallel has
neither option and runs as usual. Peak memory is that of one forward and backward
(`max_memory_allocated`), summed over the devices.
"""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import not_run

from .libraries import LIBRARIES
from .memory import measure_peak_bytes
from .models import WIDTH, build_blocks

DEVICES = 4
BATCH = 64
BLOCKS = 100
WITH_MODULE = pytest.mark.parametrize("library", ["module", *LIBRARIES])


def build_module_and_input(library, topology, num_blocks=BLOCKS, width=WIDTH, **options):
    # Use all devices of the run. If there is only one, use it four times.
    available = len(topology.devices)
    devices = topology.take(available if available > 1 else DEVICES)
    module = build_blocks(num_blocks, width).to(devices[0])
    x = torch.randn(BATCH, width, device=devices[0])
    if library == "module":
        return module, x
    # torch.nn.parallel does not have these options.
    options = options if library == "impl" else {}
    return Target(LIBRARIES[library]).data_parallel.DataParallel(module, devices, **options), x


@WITH_MODULE
def bench_forward(time_call, benchmark, library, topology):
    benchmark.group = f"DataParallel forward blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology)

    y = time_call(module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_MODULE
def bench_forward_backward(time_call, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology)

    time_call(run_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


@WITH_MODULE
@pytest.mark.parametrize("in_turn", [False, True], ids="in-turn={}".format)
def bench_evaluation(time_call, benchmark, library, topology, in_turn):
    benchmark.group = f"DataParallel evaluation{' in turn' * in_turn} blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology, in_turn=in_turn)
    module.eval()

    with torch.no_grad(), module.hold() if library == "impl" else nullcontext():
        y = time_call(module, x)

    assert y.shape == x.shape
    assert not y.requires_grad


@WITH_MODULE
def bench_forward_in_turn(time_call, benchmark, library, topology):
    benchmark.group = f"DataParallel forward in turn blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology, in_turn=True)

    y = time_call(module, x)

    assert y.shape == x.shape
    assert y.device == x.device


@WITH_MODULE
def bench_forward_backward_in_turn(time_call, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward in turn blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology, in_turn=True)

    time_call(run_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("library", list(LIBRARIES))
def bench_peak_memory(time_call, benchmark, library, topology):
    benchmark.group = "DataParallel peak memory blocks=20 width=256"
    module, x = build_module_and_input(library, topology, num_blocks=20, width=256)
    run_step(module, x)
    peak = measure_peak_bytes(topology, partial(run_step, module, x))
    if peak is None:
        not_run(f"torch.{topology.accelerator} does not report peak memory")
    benchmark.extra_info["peak_bytes"] = peak

    time_call(run_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


def run_step(module, x):
    module.zero_grad()
    module(x).sum().backward()
