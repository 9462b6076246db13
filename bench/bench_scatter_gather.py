"""How long splitting and joining nested structures takes.

Wall time on the host. The tensors are small: what is measured is the way through the structure,
not bandwidth.
"""

import torch

from .libraries import side_by_side
from .models import nested

DEVICES = 4
ROWS = 64


@side_by_side
def bench_scatter_nested(timed, benchmark, library, topology):
    benchmark.group = "scatter nested"
    devices = topology.take(DEVICES)

    shares = timed(library.scatter_gather.scatter, (nested(ROWS, devices[0]),), devices)

    assert [share[0][3]["d"].shape[0] for share in shares] == [ROWS // DEVICES] * DEVICES


@side_by_side
def bench_scatter_kwargs_nested(timed, benchmark, library, topology):
    benchmark.group = "scatter_kwargs nested"
    devices = topology.take(DEVICES)
    args, kwargs = (nested(ROWS, devices[0]),), {"more": nested(ROWS, devices[0])}

    shares, named = timed(library.scatter_gather.scatter_kwargs, args, kwargs, devices)

    assert len(shares) == len(named) == DEVICES
    assert named[3]["more"][3]["d"].device == devices[3]


@side_by_side
def bench_gather_nested(timed, benchmark, library, topology):
    benchmark.group = "gather nested"
    devices = topology.take(DEVICES)
    outputs = [nested(ROWS // DEVICES, device) for device in devices]

    whole = timed(library.scatter_gather.gather, outputs, devices[0])

    assert torch.equal(whole[3]["d"].cpu(), torch.ones(ROWS, 4))
