"""The time of replicate for modules of several sizes.

Times are wall times on the host, from the call until every device is idle. 400 blocks are not
measured: with them, about every second call of torch.nn.parallel runs a full garbage collection.
Its time divided by that of impl is 3.7 with the collection and 1.9 without, so the median differs
between runs.
"""

from functools import partial

import pytest
import torch

from .modules import build_blocks

DEVICES = 4


@pytest.mark.parametrize("detach", [False, True], ids=["with-grad", "detached"])
@pytest.mark.parametrize("num_blocks", [10, 100, 1000], ids="blocks={}".format)
def bench_replicate(time_alternately, libraries, benchmark, topology, num_blocks, detach):
    benchmark.group = f"replicate blocks={num_blocks} {'detached' if detach else 'with-grad'}"
    devices = topology.take(DEVICES)
    module = build_blocks(num_blocks).to(devices[0])
    calls = {
        name: partial(target.replicate.replicate, module, devices, detach)
        for name, target in libraries.items()
    }

    time_alternately(calls)

    for call in calls.values():
        last = call()[-1][-1][0].weight
        assert last.device == devices[-1]
        assert last.requires_grad is not detach
        assert torch.equal(last.cpu(), module[-1][0].weight.cpu())
