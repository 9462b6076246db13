"""All replicas of a forward compute with the same values. In the reference they do not: PA-10."""

import threading
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.run_modules import run
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.topology import not_run

VALUES_CLAUSE = clause("divergences.PA-10.replicas-compute-with-the-same-values")


class CastingLinear(nn.Linear):
    """A layer that computes in bfloat16. The replica of the first row ends before the others."""

    def __init__(self, device):
        super().__init__(1, 1, bias=False, device=device)
        self.has_ended = threading.Event()

    def forward(self, x):
        if x[0].item() > 1:
            assert self.has_ended.wait(60)
        # The end of the region in a worker clears the cache of casts.
        with torch.autocast(x.device.type, torch.bfloat16):
            result = super().forward(x)
        self.has_ended.set()
        return result


class Scaled(Tensor):
    """A tensor whose products are 100 times as large, unless overrides are disabled."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 100 if func is torch.mul else result


def products(target, topology, factor):
    """Multiply a number by ``factor`` in two modules, each in its own thread."""
    barrier = threading.Barrier(2)

    def multiply():
        barrier.wait(60)
        product = torch.mul(torch.tensor(1.2e-38), factor)
        return product.as_subclass(Tensor).view(torch.int32).item()

    return run(target, topology, [multiply] * 2)


def casts_of_the_current_parameters(package, topology, way="in threads", earlier="caller"):
    """Change a parameter and cast it, in one region of autocast. Yield outputs and right ones."""
    capabilities.require("autocast")
    device = topology.device(0)
    options = {} if way == "in threads" else {"in_turn": True}
    module, x = CastingLinear(device), torch.arange(1.0, 5.0).to(device)[:, None]
    net = package.data_parallel.DataParallel(module, topology.take(2), **options)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        for value in (1, 2):
            module.weight.fill_(value)
            with net.hold() if way == "held" else nullcontext():
                yield net(x), value * x.bfloat16()
            if earlier == "caller":
                module(x)
            module.has_ended.clear()


@VALUES_CLAUSE
@pytest.mark.parametrize(
    ("way", "earlier"),
    [
        ("in threads", "caller"),
        ("in turn", "caller"),
        ("in turn", "forward"),
        ("held", "caller"),
        ("held", "forward"),
    ],
)
def test_replicas_cast_the_current_parameters(target, topology, way, earlier):
    for found, expected in casts_of_the_current_parameters(target, topology, way, earlier):
        checks.same(found, expected)


@VALUES_CLAUSE
def test_reference_uses_earlier_casts_in_the_first_replica(reference, topology):
    _, (found, expected) = casts_of_the_current_parameters(reference, topology)
    checks.same(found[:2], expected[:2] / 2)
    checks.same(found[2:], expected[2:])


@VALUES_CLAUSE
def test_modules_flush_the_same_denormal_numbers(target, topology):
    before = products(target, topology, 0.5)  # Threads that are kept have begun before the change.
    if not torch.set_flush_denormal(True):
        not_run("this CPU cannot flush denormal numbers")
    try:
        flushed = products(target, topology, 0.5)
    finally:
        torch.set_flush_denormal(False)
    after = products(target, topology, 0.5)
    assert flushed == [0, 0]
    assert before == after
    assert 0 not in after


@VALUES_CLAUSE
def test_modules_call_the_same_overrides(target, topology):
    factor = torch.ones(()).as_subclass(Scaled)
    with torch._C.DisableTorchFunctionSubclass():
        found = products(target, topology, factor)
    assert found[0] == found[1]
