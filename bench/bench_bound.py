"""The most that DataParallel could be worth in one thread: its operators, and nothing else.

In these groups `impl` is four modules on four devices, made beforehand: each gets its part of the
batch, which is there already, one after the other. Nothing is copied, split or joined, so that
no design that runs these operators in one thread has a better ratio; `reference` is
torch.nn.parallel's DataParallel, `module` the plain module on the whole batch.
"""

import pytest
import torch

from .bench_compiled import as_captured
from .bench_data_parallel import BATCH, BLOCKS, DEVICES, WITH_FLOOR, wrapped
from .models import WIDTH, blocks

COMPILED = pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)


@WITH_FLOOR
def bench_forward(timed, benchmark, library, topology):
    benchmark.group = f"bound of DataParallel forward in turn blocks={BLOCKS}"
    modules, inputs = _work(library, topology)

    outputs = timed(_forward, modules, inputs)

    assert [y.shape for y in outputs] == [x.shape for x in inputs]
    assert [y.device for y in outputs] == [x.device for x in inputs]


@WITH_FLOOR
def bench_evaluation(timed, benchmark, library, topology):
    benchmark.group = f"bound of DataParallel evaluation in turn blocks={BLOCKS}"
    modules, inputs = _work(library, topology)
    for module in modules:
        module.eval()

    with torch.no_grad():
        outputs = timed(_forward, modules, inputs)

    assert [y.shape for y in outputs] == [x.shape for x in inputs]
    assert not any(y.requires_grad for y in outputs)


@WITH_FLOOR
@COMPILED
def bench_forward_backward(timed, benchmark, library, topology, compiled):
    how = "compiled" if compiled else "in turn"
    benchmark.group = f"bound of DataParallel forward+backward {how} blocks={BLOCKS}"
    modules, inputs = _work(library, topology)
    if compiled and library == "impl":
        modules = [torch.compile(module, backend=as_captured) for module in modules]
        _step(modules, inputs)  # Compiles.

    timed(_step, modules, inputs)

    assert all(p.grad is not None for module in modules for p in module.parameters())


def _work(library, topology):
    if library != "impl":
        module, x = wrapped(library, topology)
        return [module], [x]
    devices = topology.take(DEVICES)
    rows = BATCH // DEVICES
    return [blocks(BLOCKS).to(it) for it in devices], [
        torch.randn(rows, WIDTH, device=it) for it in devices
    ]


def _forward(modules, inputs):
    return [module(x) for module, x in zip(modules, inputs, strict=True)]


def _step(modules, inputs):
    for module in modules:
        module.zero_grad()
    torch.autograd.backward([output.sum() for output in _forward(modules, inputs)])
