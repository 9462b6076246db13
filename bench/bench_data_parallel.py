"""The time and the peak memory of DataParallel for many small layers, and for many inputs.

Times are wall times on the host, from the call until every device is idle. In the rows called
"evaluation" impl caches its replicas (`hold`). In the rows called "in turn" impl runs one replica
after the other (`in_turn`). torch.nn.parallel has neither option and runs as usual. Peak memory is
that of one forward and backward (`max_memory_allocated`), summed over the devices.
"""

from functools import partial

import pytest
import torch

from spec_tests.machine.devices import not_run

from .modules import WIDTH, ScaledSum, build_blocks, measure_peak_bytes, replica_devices

DEVICES = 4
BATCH = 64
BLOCKS = 100
#: The number of tensors in the dict of `bench_inputs_from_cpu`.
INPUTS = 100


def build_modules_and_input(libraries, topology, num_blocks=BLOCKS, width=WIDTH, in_turn=False):
    """Return the DataParallel wrapper of each library, by name, and an input.

    All wrappers have the same module. Only that of impl runs its replicas ``in_turn``.
    """
    options = {library: {} for library in libraries}
    if in_turn:
        if "impl" not in libraries:
            not_run("measures what only impl has")
        options["impl"] = {"in_turn": True}
    devices = replica_devices(topology)
    x = torch.randn(BATCH, width, device=devices[0])
    module = build_blocks(num_blocks, width).to(devices[0])
    modules = {
        library: target.data_parallel.DataParallel(module, devices, **options[library])
        for library, target in libraries.items()
    }
    return modules, x


@pytest.mark.parametrize("in_turn", [False, True], ids="in-turn={}".format)
def bench_forward(time_alternately, libraries, benchmark, topology, in_turn):
    benchmark.group = f"DataParallel forward{' in turn' * in_turn} blocks={BLOCKS}"
    modules, x = build_modules_and_input(libraries, topology, in_turn=in_turn)

    time_alternately({library: partial(module, x) for library, module in modules.items()})

    for module in modules.values():
        y = module(x)
        assert y.shape == x.shape
        assert y.device == x.device


@pytest.mark.parametrize("in_turn", [False, True], ids="in-turn={}".format)
def bench_forward_backward(time_alternately, libraries, benchmark, topology, in_turn):
    benchmark.group = f"DataParallel forward+backward{' in turn' * in_turn} blocks={BLOCKS}"
    modules, x = build_modules_and_input(libraries, topology, in_turn=in_turn)

    time_alternately(
        {library: partial(run_step, module, x) for library, module in modules.items()}
    )

    for module in modules.values():
        assert all(p.grad is not None for p in module.parameters())


@pytest.mark.usefixtures("impl_only")
@pytest.mark.parametrize("in_turn", [False, True], ids="in-turn={}".format)
def bench_evaluation(time_alternately, libraries, benchmark, topology, in_turn):
    benchmark.group = f"DataParallel evaluation{' in turn' * in_turn} blocks={BLOCKS}"
    modules, x = build_modules_and_input(libraries, topology, in_turn=in_turn)
    calls = {library: partial(module.eval(), x) for library, module in modules.items()}

    with torch.no_grad(), modules["impl"].hold():
        time_alternately(calls)
        outputs = [call() for call in calls.values()]

    for y in outputs:
        assert y.shape == x.shape
        assert not y.requires_grad


def bench_inputs_from_cpu(time_alternately, libraries, benchmark, topology):
    benchmark.group = f"DataParallel forward+backward inputs={INPUTS} on the CPU"
    devices = topology.take(DEVICES)
    module = ScaledSum().to(devices[0])
    named = {f"x{index}": torch.ones(BATCH, 4) for index in range(INPUTS)}
    modules = {
        library: target.data_parallel.DataParallel(module, devices)
        for library, target in libraries.items()
    }

    time_alternately(
        {library: partial(run_step, each, named) for library, each in modules.items()}
    )

    assert module.weight.grad.tolist() == [BATCH * 4 * INPUTS]


def bench_peak_memory(time_alternately, libraries, benchmark, topology):
    benchmark.group = "DataParallel peak memory blocks=20 width=256"
    modules, x = build_modules_and_input(libraries, topology, num_blocks=20, width=256)
    steps = {library: partial(run_step, module, x) for library, module in modules.items()}
    peaks = {}
    for library, step in steps.items():
        step()
        peaks[library] = measure_peak_bytes(topology, step)
    if None in peaks.values():
        not_run(f"torch.{topology.accelerator} does not report peak memory")

    time_alternately(steps, **{library: {"peak_bytes": peak} for library, peak in peaks.items()})

    for module in modules.values():
        assert all(p.grad is not None for p in module.parameters())


def run_step(module, x):
    module.zero_grad()
    module(x).sum().backward()
