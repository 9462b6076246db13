"""The speed-up of several threads over one thread.

The speed-up is large on free-threaded Python and small with the global interpreter lock. Times are
wall times on the host. In these groups `reference` is not torch.nn.parallel. It is the same work
in one thread: one replica after the other, or the plain module on the whole batch. The plain
module may use as many intra-op threads as there are replicas.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

import impl

from .models import WIDTH, Filter, Recurrent, build_blocks

BATCH = 64
BLOCKS = 100
CPU_REPLICAS = 2
#: For each model of the CPU replicas: its constructor, and the number and the width of the rows
#: of its input. The largest tensor of "filter" has 32,768 elements, so that PyTorch runs its
#: operators in one thread: it uses several threads for operators on larger tensors.
MODELS = {
    "recurrent": (Recurrent, 512, 32),
    "blocks": (partial(build_blocks, BLOCKS), 512, WIDTH),
    "filter": (Filter, 2048, 2),
}
AGAINST_ONE_THREAD = pytest.mark.parametrize("library", ["reference", "impl"])


@AGAINST_ONE_THREAD
def bench_replicas(time_call, benchmark, library, topology):
    benchmark.group = f"four replicas against one thread blocks={BLOCKS}"
    devices = topology.take(4)
    replicas = impl.replicate(build_blocks(BLOCKS).to(devices[0]), devices)
    inputs = [torch.randn(BATCH // 4, WIDTH, device=device) for device in devices]

    if library == "impl":
        outputs = time_call(impl.parallel_apply, replicas, inputs, None, devices)
    else:
        outputs = time_call(_run_in_turn, replicas, inputs)

    assert [y.device for y in outputs] == devices


@AGAINST_ONE_THREAD
@pytest.mark.parametrize("model", MODELS)
def bench_cpu_replicas(time_call, benchmark, library, model):
    build, rows, width = MODELS[model]
    benchmark.group = f"two CPU replicas against the plain module {model} rows={rows}"
    module, x = build().eval(), torch.randn(rows, width)
    wrapper = impl.DataParallel(module, ["cpu"] * CPU_REPLICAS)

    with torch.no_grad(), wrapper.hold():
        if library == "impl":
            y = time_call(wrapper, x)
        else:
            with _use_threads(CPU_REPLICAS):
                y = time_call(module, x)
        torch.testing.assert_close(y, module(x))


def _run_in_turn(replicas, inputs):
    return [replica(x) for replica, x in zip(replicas, inputs, strict=True)]


@contextmanager
def _use_threads(num_threads: int) -> Iterator[None]:
    """Set the number of intra-op threads in a ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
