"""All replicas of a forward compute with the same values. In the reference they do not: PA-10."""

import threading

import pytest
import torch
from torch import Tensor

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.topology import not_run
from spec_tests.parallel_apply.casts import CastingLinear, casts_of_the_current_parameters
from spec_tests.parallel_apply.run_modules import run

VALUES_CLAUSE = clause("divergences.PA-10.replicas-compute-with-the-same-values")


class ScaledProducts(Tensor):
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


def wrapped(target, topology):
    module = CastingLinear(topology.device(0))
    return target.data_parallel.DataParallel(module, topology.take(2))


@VALUES_CLAUSE
@pytest.mark.parametrize("earlier", ["caller", "forward"])
def test_replicas_cast_the_current_parameters(target, topology, earlier):
    net = wrapped(target, topology)
    for found, expected in casts_of_the_current_parameters(net, earlier):
        checks.same(found, expected)


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
    factor = torch.ones(()).as_subclass(ScaledProducts)
    with torch._C.DisableTorchFunctionSubclass():
        found = products(target, topology, factor)
    assert found[0] == found[1]
