"""The highest ratio that a DataParallel can reach if one thread runs all operators.

In these groups `impl` is not a DataParallel. It is four modules on four devices that run one after
the other, each on a chunk that is already on its device. Nothing is replicated, scattered or
gathered, so no DataParallel in one thread can be faster. `reference` is torch.nn.parallel's
DataParallel, and `module` is the plain module on the whole batch.
"""

import pytest
import torch

from .bench_compiled import eager_backend
from .bench_data_parallel import BATCH, BLOCKS, DEVICES, WITH_MODULE, build_module_and_input
from .models import WIDTH, build_blocks

COMPILED = pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)


@WITH_MODULE
def bench_forward(time_call, benchmark, library, topology):
    benchmark.group = f"bound of DataParallel forward in turn blocks={BLOCKS}"
    modules, inputs = _build_modules_and_inputs(library, topology)

    outputs = time_call(_run_forward, modules, inputs)

    assert [y.shape for y in outputs] == [x.shape for x in inputs]
    assert [y.device for y in outputs] == [x.device for x in inputs]


@WITH_MODULE
def bench_evaluation(time_call, benchmark, library, topology):
    benchmark.group = f"bound of DataParallel evaluation in turn blocks={BLOCKS}"
    modules, inputs = _build_modules_and_inputs(library, topology)
    for module in modules:
        module.eval()

    with torch.no_grad():
        outputs = time_call(_run_forward, modules, inputs)

    assert [y.shape for y in outputs] == [x.shape for x in inputs]
    assert not any(y.requires_grad for y in outputs)


@WITH_MODULE
@COMPILED
def bench_forward_backward(time_call, benchmark, library, topology, compiled):
    mode = "compiled" if compiled else "in turn"
    benchmark.group = f"bound of DataParallel forward+backward {mode} blocks={BLOCKS}"
    modules, inputs = _build_modules_and_inputs(library, topology)
    if compiled and library == "impl":
        modules = [torch.compile(module, backend=eager_backend) for module in modules]
        _run_step(modules, inputs)  # The first step compiles the modules.

    time_call(_run_step, modules, inputs)

    assert all(p.grad is not None for module in modules for p in module.parameters())


def _build_modules_and_inputs(library, topology):
    if library != "impl":
        module, x = build_module_and_input(library, topology)
        return [module], [x]
    devices = topology.take(DEVICES)
    rows = BATCH // DEVICES
    return [build_blocks(BLOCKS).to(device) for device in devices], [
        torch.randn(rows, WIDTH, device=device) for device in devices
    ]


def _run_forward(modules, inputs):
    return [module(x) for module, x in zip(modules, inputs, strict=True)]


def _run_step(modules, inputs):
    for module in modules:
        module.zero_grad()
    torch.autograd.backward([output.sum() for output in _run_forward(modules, inputs)])
