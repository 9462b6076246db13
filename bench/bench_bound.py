"""The highest ratio that a DataParallel can reach if one thread runs all operators.

In these groups `impl` is not a DataParallel. It is four modules on four devices that run one after
the other, each on a chunk that is already on its device. Nothing is replicated, scattered or
gathered, so no DataParallel in one thread can be faster. `reference` is torch.nn.parallel's
DataParallel.
"""

from functools import partial

import pytest
import torch

from .bench_compiled import eager_backend
from .bench_data_parallel import BATCH, BLOCKS, DEVICES, build_modules_and_input, run_step
from .models import WIDTH, build_blocks

pytestmark = pytest.mark.usefixtures("impl_only")


def bench_forward(time_in_turn, targets, benchmark, topology):
    benchmark.group = f"bound of DataParallel forward in turn blocks={BLOCKS}"
    wrapped, x, modules, inputs = _build(targets, topology)
    run = partial(_run_forward, modules, inputs)

    time_in_turn({"reference": partial(wrapped, x), "impl": run})

    assert [y.device for y in run()] == [x.device for x in inputs]


def bench_evaluation(time_in_turn, targets, benchmark, topology):
    benchmark.group = f"bound of DataParallel evaluation in turn blocks={BLOCKS}"
    wrapped, x, modules, inputs = _build(targets, topology)
    for module in (wrapped, *modules):
        module.eval()
    run = partial(_run_forward, modules, inputs)

    with torch.no_grad():
        time_in_turn({"reference": partial(wrapped, x), "impl": run})
        outputs = run()

    assert not any(y.requires_grad for y in outputs)


@pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)
def bench_forward_backward(time_in_turn, targets, benchmark, topology, compiled):
    mode = "compiled" if compiled else "in turn"
    benchmark.group = f"bound of DataParallel forward+backward {mode} blocks={BLOCKS}"
    wrapped, x, modules, inputs = _build(targets, topology)
    if compiled:
        modules = [torch.compile(module, backend=eager_backend) for module in modules]
        _run_step(modules, inputs)  # The first step compiles the modules.
    run = partial(_run_step, modules, inputs)

    time_in_turn({"reference": partial(run_step, wrapped, x), "impl": run})

    assert all(p.grad is not None for module in modules for p in module.parameters())


def _build(targets, topology):
    """Return torch.nn.parallel's module and its input, and a module and an input per device."""
    modules, x = build_modules_and_input(targets, topology)
    devices = topology.take(DEVICES)
    rows = BATCH // DEVICES
    return (
        modules["reference"],
        x,
        [build_blocks(BLOCKS).to(device) for device in devices],
        [torch.randn(rows, WIDTH, device=device) for device in devices],
    )


def _run_forward(modules, inputs):
    return [module(x) for module, x in zip(modules, inputs, strict=True)]


def _run_step(modules, inputs):
    for module in modules:
        module.zero_grad()
    torch.autograd.backward([output.sum() for output in _run_forward(modules, inputs)])
