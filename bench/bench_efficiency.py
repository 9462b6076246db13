"""The efficiency of two devices, or of two CPU replicas.

The efficiency is the time of the module alone on one device, divided by twice the time on two
devices: 1 means that two devices take half the time. In training and evaluation a call computes
one batch, split over the devices: by torch.nn.parallel (not on the CPU), by impl, and in
evaluation by impl in a block of `hold` ("held"). In the rows called "batches" a call computes many
whole batches: in order on one device; by a loop that a user writes in fifteen lines ("loop"); by
`map` in a block of `hold`.
"""

import copy
import threading
from collections import deque
from functools import partial

import pytest
import torch

import impl

from .modules import EFFICIENCY_MODULES

DEVICES = 2


@pytest.fixture(params=["devices", "cpu"])
def devices(request, topology, benchmark, time_alternately):
    """Return two devices of the run, or the CPU twice: only impl has CPU replicas."""
    if request.param == "cpu":
        request.getfixturevalue("impl_only")
    placed = ["cpu"] * DEVICES if request.param == "cpu" else topology.take(DEVICES)
    benchmark.extra_info["devices"] = [*map(str, placed)]
    return placed


def build(kind, devices):
    """Return a module on the first of ``devices``, and a batch for each call of it."""
    torch.manual_seed(0)
    module, batches = kind()
    return module.to(devices[0]), [batch.to(devices[0]) for batch in batches]


def wrap(libraries, module, devices):
    """Return the calls of one batch, by library. torch.nn.parallel does not run on the CPU."""
    used = [name for name in libraries if devices[0] != "cpu" or name != "reference"]
    wrappers = {name: libraries[name].data_parallel.DataParallel(module, devices) for name in used}
    return {"one device": module, **wrappers}


@pytest.mark.parametrize("name", EFFICIENCY_MODULES)
def bench_training(time_alternately, libraries, benchmark, devices, name):
    benchmark.group = f"{name} training on 2 {describe(devices)}"
    module, batches = build(EFFICIENCY_MODULES[name], devices)
    batch = torch.cat(batches[:8])
    calls = wrap(libraries, module, devices)
    losses = {each: train(call, batch) for each, call in calls.items()}
    if "norm" not in name:  # The batch norms of replicas use their own rows.
        assert [*losses.values()] == pytest.approx([losses["one device"]] * len(losses), rel=1e-3)
    time_alternately({each: partial(train, call, batch) for each, call in calls.items()})


@pytest.mark.usefixtures("impl_only")
@pytest.mark.parametrize("name", EFFICIENCY_MODULES)
def bench_evaluation(time_alternately, libraries, benchmark, devices, name):
    benchmark.group = f"{name} evaluation on 2 {describe(devices)}"
    module, batches = build(EFFICIENCY_MODULES[name], devices)
    batch = torch.cat(batches[:8])
    calls = wrap(libraries, module.eval(), devices)
    calls["impl held"] = impl.DataParallel(module, devices)
    with torch.no_grad(), calls["impl held"].hold():
        expected = module(batch)
        for call in calls.values():
            torch.testing.assert_close(call(batch), expected, rtol=1e-3, atol=1e-5)
        time_alternately({each: partial(call, batch) for each, call in calls.items()})


@pytest.mark.usefixtures("impl_only", "libraries")
@pytest.mark.parametrize("name", [*EFFICIENCY_MODULES, "identity"])
def bench_batches(time_alternately, benchmark, devices, name):
    benchmark.group = f"{name} batches on 2 {describe(devices)}"
    kind = EFFICIENCY_MODULES.get(name, lambda: (torch.nn.Identity(), [torch.ones(2)] * 64))
    module, batches = build(kind, devices)
    wrapper = impl.DataParallel(module.eval(), devices)
    copies = [module, copy.deepcopy(module).to(devices[1])]
    calls = {
        "one device": lambda: [module(batch) for batch in batches],
        "loop": lambda: run_loop(copies, devices, batches),
        "impl": lambda: list(wrapper.map(batches)),
    }
    with torch.no_grad(), wrapper.hold():
        for call in calls.values():
            torch.testing.assert_close(call(), calls["one device"](), rtol=1e-3, atol=1e-5)
        time_alternately(calls)


def run_loop(copies, devices, batches):
    """Return the outputs: one thread and one copy of the module for each device."""
    outputs, waiting = [None] * len(batches), deque(enumerate(batches))

    def work(module, device):
        with torch.no_grad():
            while True:
                try:
                    index, batch = waiting.popleft()
                except IndexError:
                    return
                outputs[index] = module(batch.to(device)).to(devices[0])

    pairs = zip(copies, devices, strict=True)
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs


def train(call, batch):
    """Return the loss of a training step without an optimizer."""
    for parameter in call.parameters():
        parameter.grad = None
    loss = call(batch).square().mean()
    loss.backward()
    return loss.item()


def describe(devices):
    return "CPU replicas" if devices[0] == "cpu" else "devices"
