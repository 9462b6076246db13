"""The overhead of parallel_apply: wall time on the host for modules that return their input."""

import pytest
import torch

from .libraries import for_both_libraries
from .models import Identity


@for_both_libraries
@pytest.mark.parametrize("num_modules", [2, 4], ids="modules={}".format)
def bench_parallel_apply(time_call, benchmark, library, topology, num_modules):
    benchmark.group = f"parallel_apply identity modules={num_modules}"
    devices = topology.take(num_modules)
    modules = [Identity() for _ in devices]
    inputs = [torch.ones(2, device=device) for device in devices]

    outputs = time_call(library.parallel_apply.parallel_apply, modules, inputs, None, devices)

    assert all(output is x for output, x in zip(outputs, inputs, strict=True))
