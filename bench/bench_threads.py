"""What threads gain over one thread: most on a Python without lock, little on one with it.

Wall time on the host. In these groups `reference` is not torch.nn.parallel but the same work in
one thread: the replicas one after the other, or the plain module on the whole batch, which then
may use as many threads within an operator as there are replicas.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

import impl

from .models import WIDTH, Filter, Recurrent, blocks

BATCH = 64
BLOCKS = 100
LANES = 2
#: What lanes are tried with: a model, and its rows and their width. The filter's largest tensor
#: has 32,768 numbers, the most that PyTorch leaves to one thread.
SMALL = {
    "recurrent": (Recurrent, 512, 32),
    "blocks": (partial(blocks, BLOCKS), 512, WIDTH),
    "filter": (Filter, 2048, 2),
}
AGAINST_ONE_THREAD = pytest.mark.parametrize("library", ["reference", "impl"])


@AGAINST_ONE_THREAD
def bench_replicas(timed, benchmark, library, topology):
    benchmark.group = f"four replicas against one thread blocks={BLOCKS}"
    devices = topology.take(4)
    replicas = impl.replicate(blocks(BLOCKS).to(devices[0]), devices)
    inputs = [torch.randn(BATCH // 4, WIDTH, device=device) for device in devices]

    if library == "impl":
        outputs = timed(impl.parallel_apply, replicas, inputs, None, devices)
    else:
        outputs = timed(_one_after_the_other, replicas, inputs)

    assert [y.device for y in outputs] == devices


@AGAINST_ONE_THREAD
@pytest.mark.parametrize("model", SMALL)
def bench_lanes(timed, benchmark, library, model):
    make, rows, width = SMALL[model]
    benchmark.group = f"two CPU lanes against the plain module {model} rows={rows}"
    module, x = make().eval(), torch.randn(rows, width)
    lanes = impl.DataParallel(module, ["cpu"] * LANES)

    with torch.no_grad(), lanes.hold():
        if library == "impl":
            y = timed(lanes, x)
        else:
            with _threads(LANES):
                y = timed(module, x)
        torch.testing.assert_close(y, module(x))


def _one_after_the_other(replicas, inputs):
    return [replica(x) for replica, x in zip(replicas, inputs, strict=True)]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let an operator use ``count`` threads; it uses one where replicas have a thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
