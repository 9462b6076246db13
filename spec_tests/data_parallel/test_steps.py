"""DataParallel: the methods that forward calls."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from spec_tests.data_parallel.steps import ParameterFacts, StepsCall
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.data_parallel import FUNCTIONAL, DataParallelCall, NewModule
from spec_tests.strategies.devices import device_lists
from spec_tests.strategies.tensors import TensorSpec


def overridden(target, topology, count=2, **steps):
    kind = type("Overridden", (target.data_parallel.DataParallel,), steps)
    device = topology.device(0)
    return kind(nn.Linear(2, 2).to(device), [device] * count), torch.ones(4, 2, device=device)


@clause("data_parallel.steps.arguments")
@given(
    devices=device_lists(min_size=2),
    rows=st.integers(1, 6),
    dim=st.sampled_from([0, -2]),
    grad=st.booleans(),
)
def test_forward_passes_the_result_of_each_method_to_the_next(
    target, baselines, topology, devices, rows, dim, grad
):
    computed(["bilinear"])
    call = StepsCall(tuple(devices), rows, dim, grad)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.steps.scatter")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
@pytest.mark.parametrize("place", ["class", "instance"])
def test_forward_uses_the_result_of_an_overridden_scatter(target, topology, count, place):
    def scatter(inputs, kwargs, device_ids):
        return [()], [{"input": kwargs["input"] * 3}]

    steps = {"scatter": staticmethod(scatter)} if place == "class" else {}
    wrapped, x = overridden(target, topology, count, **steps)
    if place == "instance":
        wrapped.scatter = scatter
    torch.testing.assert_close(wrapped(input=x), wrapped.module(x * 3))


@clause("data_parallel.steps.scatter")
def test_an_overridden_scatter_may_return_none_for_keyword_arguments(target, topology):
    def scatter(self, inputs, kwargs, device_ids):
        return [(inputs[0] * 3,)], None

    wrapped, x = overridden(target, topology, scatter=scatter)
    torch.testing.assert_close(wrapped(x), wrapped.module(x * 3))


@clause("data_parallel.steps.replicate")
def test_forward_applies_the_modules_of_an_overridden_replicate(target, topology):
    def replicate(self, module, device_ids):
        return [nn.Identity() for _ in device_ids]

    wrapped, x = overridden(target, topology, replicate=replicate)
    torch.testing.assert_close(wrapped(x), x)


@clause("data_parallel.steps.parallel-apply")
def test_forward_gathers_the_results_of_an_overridden_parallel_apply(target, topology):
    def parallel_apply(self, replicas, inputs, kwargs):
        return [x + 1 for (x,) in inputs]

    wrapped, x = overridden(target, topology, parallel_apply=parallel_apply)
    torch.testing.assert_close(wrapped(x), x + 1)


@clause("data_parallel.steps.gather")
def test_forward_returns_the_result_of_an_overridden_gather(target, topology):
    def gather(self, outputs, output_device):
        return [type(outputs), len(outputs), output_device]

    wrapped, x = overridden(target, topology, gather=gather)
    assert wrapped(x) == [list, 2, topology.device(0).index]


@clause("data_parallel.steps.detached")
@given(functional=FUNCTIONAL, grad=st.booleans())
def test_without_grad_mode_only_the_class_makes_detached_replicas(
    target, baselines, topology, functional, grad
):
    devices = [DeviceAt(0), DeviceAt(1)]
    x = TensorSpec((2, 2))
    call = DataParallelCall(
        NewModule(ParameterFacts), (x,), {}, devices, functional=functional, grad=grad
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.profiler")
def test_forward_is_recorded_by_the_profiler(target, topology):
    wrapped, x = overridden(target, topology)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        wrapped(x)
    assert "DataParallel.forward" in {event.name for event in recorded.events()}
