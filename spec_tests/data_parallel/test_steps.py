"""DataParallel: the methods that forward calls."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from spec_tests import checks
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt, device_lists
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    DataParallelCall,
    NewModule,
    WeightedLeaves,
)
from spec_tests.strategies.tensors import TensorSpec


def overridden(target, topology, count=2, **steps):
    kind = type("Overridden", (target.data_parallel.DataParallel,), steps)
    device = topology.device(0)
    return kind(nn.Linear(2, 2).to(device), [device] * count), torch.ones(4, 2, device=device)


def without_replicas(argument):
    """Return the copies of the parameters in place of each replica."""
    is_list = isinstance(argument, list) and all(isinstance(each, nn.Module) for each in argument)
    return [dict(each._former_parameters) for each in argument] if is_list else argument


def recording_class(base, recorded):
    """Return a subclass of ``base`` whose steps append name and arguments to ``recorded``."""

    def make_step(name):
        def method(self, *args):
            recorded.append((name, tuple(map(without_replicas, args))))
            return getattr(super(kind, self), name)(*args)

        return method

    names = ("scatter", "replicate", "parallel_apply", "gather")
    kind = type("Recording", (base,), {name: make_step(name) for name in names})
    return kind


class TwoWeights(WeightedLeaves):
    """A module with two parameters, whose copies on a repeated device share no memory: CO-4."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(1))


@dataclass(frozen=True, repr=False)
class StepsCall(DataParallelCall):
    """A call of a ``DataParallel`` that returns the arguments of the four steps."""

    def run(self, target, inputs):
        recorded = []
        kind = recording_class(target.data_parallel.DataParallel, recorded)
        wrapped = kind(inputs["module"], inputs["devices"], dim=self.dim)
        with torch.set_grad_enabled(self.grad):
            wrapped(*inputs["args"], **inputs["kwargs"])
        return recorded


class ParameterFacts(nn.Module):
    """A module that returns whether its weight is a leaf, requires grad and is no nn.Parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        facts = {
            "weight is a leaf": self.weight.is_leaf,
            "weight requires grad": self.weight.requires_grad,
            "weight is a plain tensor": type(self.weight) is torch.Tensor,
        }
        return {name: torch.tensor([each], device=x.device) for name, each in facts.items()}


# It is the first test, because replicas that are not detached also fail the next one.
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
    x = TensorSpec((rows, 2), requires_grad=True)
    module = NewModule(TwoWeights)
    call = StepsCall(module, (x,), {"y": x}, devices, dim=dim, grad=grad)
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
    checks.same(wrapped(input=x), wrapped.module(x * 3), tolerance=checks.LAYER)


#: For each clause: the name of a method, an override, and the output of the wrapper for a batch.
OVERRIDES = {
    "data_parallel.steps.scatter": [
        (
            "scatter",
            lambda self, inputs, kwargs, device_ids: ([(inputs[0] * 3,)], None),
            lambda wrapped, x: wrapped.module(x * 3),
        )
    ],
    "data_parallel.steps.replicate": [
        (
            "replicate",
            lambda self, module, device_ids: [nn.Identity() for _ in device_ids],
            lambda wrapped, x: x,
        )
    ],
    "data_parallel.steps.parallel-apply": [
        (
            "parallel_apply",
            lambda self, replicas, inputs, kwargs: [x + 1 for (x,) in inputs],
            lambda wrapped, x: x + 1,
        )
    ],
    "data_parallel.steps.gather": [
        (
            "gather",
            lambda self, outputs, output_device: [type(outputs), len(outputs), output_device],
            lambda wrapped, x: [list, 2, x.device.index],
        )
    ],
}


@cases("name, override, output_of", OVERRIDES)
def test_forward_uses_the_result_of_an_overridden_method(
    target, topology, name, override, output_of
):
    wrapped, x = overridden(target, topology, **{name: override})
    checks.same(wrapped(x), output_of(wrapped, x), tolerance=checks.LAYER)


@clause("data_parallel.profiler")
def test_forward_is_recorded_by_the_profiler(target, topology):
    wrapped, x = overridden(target, topology)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        wrapped(x)
    assert "DataParallel.forward" in {event.name for event in recorded.events()}
