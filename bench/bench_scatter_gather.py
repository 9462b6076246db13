"""The time of scatter and gather for nested lists and dicts, and of scatter for CPU tensors.

Times are wall times on the host. The tensors are small, so traversing the containers and looking
up streams takes most of the time, not copying the tensors.
"""

from functools import partial

import pytest
import torch

from .modules import build_nested

DEVICES = 4
ROWS = 64


def bind(libraries, name, *args):
    """Return, for each library, a call of the function ``name`` of its module scatter_gather."""
    return {
        library: partial(getattr(target.scatter_gather, name), *args)
        for library, target in libraries.items()
    }


def bench_scatter_nested(time_alternately, libraries, benchmark, topology):
    benchmark.group = "scatter nested"
    devices = topology.take(DEVICES)
    calls = bind(libraries, "scatter", (build_nested(ROWS, devices[0]),), devices)

    time_alternately(calls)

    for call in calls.values():
        rows = [chunk[0][3]["d"].shape[0] for chunk in call()]
        assert rows == [ROWS // DEVICES] * DEVICES


@pytest.mark.parametrize("kind", ["pageable", "pinned", "with-grad"])
@pytest.mark.parametrize("count", [1, 30, 200], ids="tensors={}".format)
def bench_scatter_from_cpu(time_alternately, libraries, benchmark, topology, count, kind):
    benchmark.group = f"scatter from the CPU tensors={count} {kind}"
    devices = topology.take(DEVICES)
    tensors = [build_on_cpu(kind) for _ in range(count)]
    calls = bind(libraries, "scatter", tensors, devices)

    time_alternately(calls)

    for call in calls.values():
        chunks = [row[-1] for row in call()]
        assert [chunk.device for chunk in chunks] == devices
        assert torch.equal(torch.cat([chunk.cpu() for chunk in chunks]), tensors[-1])


def build_on_cpu(kind):
    tensor = torch.rand(ROWS, 4, requires_grad=kind == "with-grad")
    return tensor.pin_memory() if kind == "pinned" else tensor


def bench_scatter_kwargs_nested(time_alternately, libraries, benchmark, topology):
    benchmark.group = "scatter_kwargs nested"
    devices = topology.take(DEVICES)
    args, kwargs = (build_nested(ROWS, devices[0]),), {"more": build_nested(ROWS, devices[0])}
    calls = bind(libraries, "scatter_kwargs", args, kwargs, devices)

    time_alternately(calls)

    for call in calls.values():
        chunks, keyword_chunks = call()
        assert len(chunks) == len(keyword_chunks) == DEVICES
        assert keyword_chunks[3]["more"][3]["d"].device == devices[3]


def bench_gather_nested(time_alternately, libraries, benchmark, topology):
    benchmark.group = "gather nested"
    devices = topology.take(DEVICES)
    calls = bind(
        libraries,
        "gather",
        [build_nested(ROWS // DEVICES, device) for device in devices],
        devices[0],
    )

    time_alternately(calls)

    for call in calls.values():
        assert torch.equal(call()[3]["d"].cpu(), torch.ones(ROWS, 4))
