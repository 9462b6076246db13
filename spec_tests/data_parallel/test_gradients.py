"""data_parallel and DataParallel: first and second derivatives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.data_parallel import gradient_penalty
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.numerical_gradients import (
    call_with_tensors,
    pass_gradcheck,
    pass_gradgradcheck,
)
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.strategies.calls import device_lists
from spec_tests.strategies.data_parallel import FUNCTIONAL, DataParallelCall, NewModule
from spec_tests.strategies.probe_modules import ComplexAffine
from spec_tests.strategies.tensors import TensorSpec

#: Numbers of devices, each with the function or the class.
CALLS = pytest.mark.parametrize(("slots", "entry_point"), [(1, "function"), (3, "class")])


def network(topology, *, dtype=torch.float64):
    return gradient_penalty.network(dtype).to(topology.device(0))


def leaves(module, topology, rows, dtype=torch.float64):
    x = torch.linspace(-1, 1, rows * 2, device="cpu").reshape(rows, 2).to(dtype)
    return (x.to(topology.device(0)).requires_grad_(), *module.parameters())


def parallel_function(target, topology, module, entry_point, slots):
    parallel = gradient_penalty.wrap(target, module, topology.take(slots), entry_point)
    names = [name for name, _ in module.named_parameters()]

    def call(x, *parameters):
        replacements = dict(zip(names, parameters, strict=True))
        return call_with_tensors(lambda: parallel(x), module, replacements)

    return call


@clause("data_parallel.gradcheck")
@CALLS
def test_first_derivatives_pass_gradcheck(target, topology, entry_point, slots):
    module = network(topology)
    function = parallel_function(target, topology, module, entry_point, slots)
    assert pass_gradcheck(function, leaves(module, topology, 4))


@clause("data_parallel.gradgradcheck")
@CALLS
def test_second_derivatives_pass_gradgradcheck(target, topology, entry_point, slots):
    module = network(topology)
    function = parallel_function(target, topology, module, entry_point, slots)
    assert pass_gradgradcheck(function, leaves(module, topology, 4))


@clause("data_parallel.complex")
@given(devices=device_lists(), rows=st.integers(1, 5), functional=FUNCTIONAL)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32], ids=str)
def test_complex_modules_stay_complex(
    target, baselines, topology, dtype, devices, rows, functional
):
    capabilities.require("complex64")
    x = TensorSpec((rows, 2), dtype, requires_grad=True)
    call = DataParallelCall(NewModule(ComplexAffine), (x,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.gradient-penalty")
@pytest.mark.parametrize(
    "penalty", gradient_penalty.PENALTIES, ids=lambda penalty: penalty.__name__
)
@given(
    rows=st.integers(1, 6),
    slots=st.integers(1, 4),
    entry_point=st.sampled_from(["function", "class"]),
)
def test_a_gradient_penalty_has_the_gradients_of_the_unwrapped_module(
    target, topology, entry_point, penalty, rows, slots
):
    module = network(topology)
    x = leaves(module, topology, rows)[0]
    parallel = gradient_penalty.wrap(target, module, topology.take(slots), entry_point)
    found = gradient_penalty.gradients(penalty, parallel, module, x)
    expected = gradient_penalty.gradients(penalty, module, module, x)
    checks.same(found, expected, tolerance=checks.LAYER)


@clause("data_parallel.frozen")
@given(slots=st.integers(1, 4))
def test_frozen_parameters_get_no_gradient(target, topology, slots):
    module = network(topology)
    module[0].weight.requires_grad_(False)
    x = leaves(module, topology, 4)[0]
    gradient_penalty.wrap(target, module, topology.take(slots), "class")(x).sum().backward()
    assert module[0].weight.grad is None
    assert module[0].bias.grad is not None


@clause("data_parallel.accumulates")
def test_gradients_of_several_calls_add_up(target, topology):
    module = nn.Linear(2, 1).to(topology.device(0))
    wrapped = target.data_parallel.DataParallel(module, topology.take(3))
    for rows in (1, 4, 2):
        wrapped(torch.ones(rows, 2, device=topology.device(0))).sum().backward()
    checks.same(module.weight.grad, torch.full((1, 2), 7.0))
