"""A training step and an evaluation forward of eight models.

Each model runs on simulated (or real) devices and as two CPU replicas, `["cpu", "cpu"]`. Variants
are called in turn: the plain module on one device, torch.nn.parallel, impl, impl with `in_turn`,
impl with `hold` or `map` (evaluation only), DistributedDataParallel with one rank for each device,
and, on the CPU, the plain module with two intra-op threads, and impl.distributed. A rank on the
CPU has one intra-op thread. It also stands for a simulated device, whose operators differ.
torch.nn.parallel does not run on the CPU. Another target takes the place of impl, without the
variants and without the CPU. A training step is zero_grad, forward, loss and backward. Peak memory
is that of the accelerator's devices, not that of the CPU.
"""

from contextlib import ExitStack
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_map_only

import impl

from . import ranks
from .models import MODELS, ROWS
from .modules import measure_peak_bytes, replica_devices
from .rank_pool import Pool

pytest.importorskip("transformers", reason="the models need the dependency group `consumers`")
pytestmark = pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
RANKS = 2
MODES = ["training", "evaluation"]


@pytest.fixture(scope="module")
def pool(topology):
    """Yield the processes of the ranks."""
    processes = Pool(max(RANKS, topology.distinct))
    yield processes
    processes.close()


@pytest.fixture(params=MODES)
def mode(request):
    """Yield the mode. In evaluation no gradients are recorded."""
    with torch.set_grad_enabled(request.param == "training"):
        yield request.param


@pytest.mark.parametrize("name", MODELS)
def bench_devices(time_alternately, libraries, benchmark, topology, pool, name, mode):
    benchmark.group = f"{name} {mode}"
    devices = replica_devices(topology)
    benchmark.extra_info["devices"] = [*map(str, devices)]
    wrappers = {
        "one device": lambda module: module,
        **{
            library: partial(target.data_parallel.DataParallel, device_ids=devices)
            for library, target in libraries.items()
        },
    }
    if "impl" in libraries:
        wrappers |= _wrap_by_impl(devices, mode)

    with ExitStack() as stack:
        calls = _build_calls(MODELS[name], devices[0], mode, wrappers, stack)
        peaks = {variant: measure_peak_bytes(topology, call) for variant, call in calls.items()}
        known = {variant: {"peak_bytes": peak} for variant, peak in peaks.items() if peak}
        if "impl" in libraries and topology.distinct == len(devices):
            of_ranks = (
                [torch.device("cpu")] * len(devices) if topology.accelerator == "sim" else devices
            )
            calls |= _start_ranks(pool, ["DistributedDataParallel"], name, mode, of_ranks)
        time_alternately(calls, **known)


@pytest.mark.usefixtures("impl_only")
@pytest.mark.parametrize("name", MODELS)
def bench_cpu(time_alternately, benchmark, pool, name, mode):
    benchmark.group = f"{name} {mode} cpu"
    benchmark.extra_info["devices"] = ["cpu"] * RANKS
    wrappers = {"one device": lambda module: module, **_wrap_by_impl(["cpu"] * RANKS, mode)}
    with ExitStack() as stack:
        calls = _build_calls(MODELS[name], "cpu", mode, wrappers, stack)
        # It comes first: its second thread spins for a moment, beside a call that has one thread.
        calls = {"one device two threads": partial(_use_two_threads, calls["one device"]), **calls}
        variants = ["impl.distributed", "DistributedDataParallel"]
        calls |= _start_ranks(pool, variants, name, mode, [torch.device("cpu")] * RANKS)
        time_alternately(calls)


class Mapped(impl.DataParallel):
    """A wrapper that computes the chunks of a batch with `map`."""

    def forward(self, *inputs, **kwargs):
        """Return the gathered outputs."""
        chunks = impl.scatter(kwargs or inputs, self.device_ids)
        return self.gather([*self.map(chunks)], self.output_device)


def _wrap_by_impl(devices, mode):
    """Return, for each variant of impl, the function that wraps a module."""
    wrap = partial(impl.DataParallel, device_ids=devices)
    variants = {"impl": wrap, "impl in turn": partial(wrap, in_turn=True)}
    if mode == "evaluation":
        variants |= {"impl held": wrap, "impl map": partial(Mapped, device_ids=devices)}
    return variants


def _build_calls(model, device, mode, wrappers, stack):
    """Return, for each variant, a call that runs a step of ``model``.

    In evaluation, check that all variants compute the same loss.
    """
    calls = {}
    torch.manual_seed(0)
    module = model.build().to(device).train(mode == "training")
    inputs = tree_map_only(torch.Tensor, lambda x: x.to(device), model.inputs(ROWS))
    for variant, wrap in wrappers.items():
        wrapped = wrap(module)
        if variant in ("impl held", "impl map"):
            stack.enter_context(wrapped.hold())
        calls[variant] = partial(ranks.run_model, wrapped, inputs, model.loss)
    losses = {variant: call() for variant, call in calls.items()}
    if mode == "evaluation":  # In training, each replica's batch norms use only its own rows.
        expected = losses["one device"]
        for variant, loss in losses.items():
            assert loss == pytest.approx(expected, rel=1e-3), variant
    return calls


def _use_two_threads(call):
    """Call ``call`` with two intra-op threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return call()
    finally:
        torch.set_num_threads(before)


def _start_ranks(pool, variants, name, mode, devices):
    """Return, for each variant, the call of a step of the model on one rank for each device."""
    size = len(devices)
    for variant in variants:
        built = pool.run(size, ranks.build_model_and_batch, variant, name, mode, devices)
        assert built == [None] * size, built
    return {variant: partial(_run_ranks, pool, size, variant) for variant in variants}


def _run_ranks(pool, size, variant):
    results = pool.run(size, ranks.run_model_step, variant)
    assert all(isinstance(each, float) for each in results), results
    return results
