"""The time of scatter and gather for nested lists and dicts.

Times are wall times on the host. The tensors are small, so traversing the containers takes most of
the time, not copying the tensors.
"""

import torch

from .libraries import for_both_libraries
from .models import build_nested

DEVICES = 4
ROWS = 64


@for_both_libraries
def bench_scatter_nested(time_call, benchmark, library, topology):
    benchmark.group = "scatter nested"
    devices = topology.take(DEVICES)

    chunks = time_call(library.scatter_gather.scatter, (build_nested(ROWS, devices[0]),), devices)

    assert [chunk[0][3]["d"].shape[0] for chunk in chunks] == [ROWS // DEVICES] * DEVICES


@for_both_libraries
def bench_scatter_kwargs_nested(time_call, benchmark, library, topology):
    benchmark.group = "scatter_kwargs nested"
    devices = topology.take(DEVICES)
    args, kwargs = (build_nested(ROWS, devices[0]),), {"more": build_nested(ROWS, devices[0])}

    chunks, keyword_chunks = time_call(
        library.scatter_gather.scatter_kwargs, args, kwargs, devices
    )

    assert len(chunks) == len(keyword_chunks) == DEVICES
    assert keyword_chunks[3]["more"][3]["d"].device == devices[3]


@for_both_libraries
def bench_gather_nested(time_call, benchmark, library, topology):
    benchmark.group = "gather nested"
    devices = topology.take(DEVICES)
    outputs = [build_nested(ROWS // DEVICES, device) for device in devices]

    gathered = time_call(library.scatter_gather.gather, outputs, devices[0])

    assert torch.equal(gathered[3]["d"].cpu(), torch.ones(ROWS, 4))
