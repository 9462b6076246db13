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

pytestmark = pytest.mark.usefixtures("impl_only")

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


def bench_replicas(time_in_turn, benchmark, topology):
    benchmark.group = f"four replicas against one thread blocks={BLOCKS}"
    devices = topology.take(4)
    replicas = impl.replicate(build_blocks(BLOCKS).to(devices[0]), devices)
    inputs = [torch.randn(BATCH // 4, WIDTH, device=device) for device in devices]
    run = partial(impl.parallel_apply, replicas, inputs, None, devices)

    time_in_turn({"reference": partial(_run_in_turn, replicas, inputs), "impl": run})

    assert [y.device for y in run()] == devices


@pytest.mark.parametrize("model", MODELS)
def bench_cpu_replicas(time_in_turn, benchmark, model):
    build, rows, width = MODELS[model]
    benchmark.group = f"two CPU replicas against the plain module {model} rows={rows}"
    module, x = build().eval(), torch.randn(rows, width)
    wrapper = impl.DataParallel(module, ["cpu"] * CPU_REPLICAS)

    with torch.no_grad(), wrapper.hold():
        time_in_turn(
            {"reference": partial(_run_in_threads, module, x), "impl": partial(wrapper, x)}
        )
        torch.testing.assert_close(wrapper(x), module(x))


def _run_in_threads(module, x):
    with _use_threads(CPU_REPLICAS):
        return module(x)


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
