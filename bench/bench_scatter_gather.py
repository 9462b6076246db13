"""The time of scatter and gather for nested lists and dicts.

Times are wall times on the host. The tensors are small, so traversing the containers takes most of
the time, not copying the tensors.
"""

from functools import partial

import torch

from .libraries import TARGETS
from .models import build_nested

DEVICES = 4
ROWS = 64


def bind(name, *args):
    """Return, for each library, a call of the function ``name`` of its module scatter_gather."""
    return {
        library: partial(getattr(target.scatter_gather, name), *args)
        for library, target in TARGETS.items()
    }


def bench_scatter_nested(time_in_turn, benchmark, topology):
    benchmark.group = "scatter nested"
    devices = topology.take(DEVICES)
    calls = bind("scatter", (build_nested(ROWS, devices[0]),), devices)

    time_in_turn(calls)

    for call in calls.values():
        rows = [chunk[0][3]["d"].shape[0] for chunk in call()]
        assert rows == [ROWS // DEVICES] * DEVICES


def bench_scatter_kwargs_nested(time_in_turn, benchmark, topology):
    benchmark.group = "scatter_kwargs nested"
    devices = topology.take(DEVICES)
    args, kwargs = (build_nested(ROWS, devices[0]),), {"more": build_nested(ROWS, devices[0])}
    calls = bind("scatter_kwargs", args, kwargs, devices)

    time_in_turn(calls)

    for call in calls.values():
        chunks, keyword_chunks = call()
        assert len(chunks) == len(keyword_chunks) == DEVICES
        assert keyword_chunks[3]["more"][3]["d"].device == devices[3]


def bench_gather_nested(time_in_turn, benchmark, topology):
    benchmark.group = "gather nested"
    devices = topology.take(DEVICES)
    calls = bind(
        "gather", [build_nested(ROWS // DEVICES, device) for device in devices], devices[0]
    )

    time_in_turn(calls)

    for call in calls.values():
        assert torch.equal(call()[3]["d"].cpu(), torch.ones(ROWS, 4))
