"""The overhead of parallel_apply: wall time on the host for modules that return their input."""

from functools import partial

import pytest
import torch

from .modules import Identity


@pytest.mark.parametrize("num_modules", [2, 4], ids="modules={}".format)
def bench_parallel_apply(time_alternately, libraries, benchmark, topology, num_modules):
    benchmark.group = f"parallel_apply identity modules={num_modules}"
    devices = topology.take(num_modules)
    modules = [Identity() for _ in devices]
    inputs = [torch.ones(2, device=device) for device in devices]
    calls = {
        name: partial(target.parallel_apply.parallel_apply, modules, inputs, None, devices)
        for name, target in libraries.items()
    }

    time_alternately(calls)

    for call in calls.values():
        assert all(output is x for output, x in zip(call(), inputs, strict=True))
