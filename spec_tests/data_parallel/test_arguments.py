"""data_parallel and DataParallel: kinds of arguments, also nested and masked tensors."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.data_parallel.gradient_penalty import wrap
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.checks import LAYER
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.calls import DeviceAt, device_lists
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    DataParallelCall,
    NewModule,
    WeightedLeaves,
)
from spec_tests.strategies.probe_modules import ArgumentCounts
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    SequenceSum,
    jagged_specs,
    masked_specs,
)
from spec_tests.strategies.tensors import TensorSpec, device_slots

X = TensorSpec((4, 2))
DEVICES = (DeviceAt(0), DeviceAt(1))


@clause("data_parallel.no-arguments")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_without_arguments_the_module_runs_once_on_the_first_device(
    target, baselines, topology, devices, functional
):
    call = DataParallelCall(NewModule(ArgumentCounts), (), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.no-tensors")
@given(devices=device_lists(), kwargs=st.sampled_from([{}, {"flag": True}]))
def test_without_tensors_the_module_runs_on_every_device(
    target, baselines, topology, devices, kwargs
):
    call = DataParallelCall(NewModule(ArgumentCounts), (1, "text"), kwargs, devices)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.keywords-alone")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_a_call_may_have_keyword_arguments_only(target, baselines, topology, devices, functional):
    call = DataParallelCall(
        NewModule(WeightedLeaves), (), {"x": X}, devices, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.inputs")
@pytest.mark.parametrize("inputs", [None, (), X, [X, X], {"x": X}, (X, X), "text"], ids=repr)
@pytest.mark.parametrize("keywords", [{}, {"y": X}], ids="module_kwargs={}".format)
def test_only_a_tuple_is_unpacked_into_several_arguments(
    target, baselines, topology, inputs, keywords
):
    call = DataParallelCall(NewModule(ArgumentCounts), inputs, keywords, DEVICES, functional=True)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.inputs-from-the-cpu")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_inputs_may_be_on_the_cpu(target, baselines, topology, devices, functional):
    x = TensorSpec((4, 2), slot=None)
    call = DataParallelCall(
        NewModule(WeightedLeaves), (x,), {"y": [x]}, devices, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.no-rows")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_a_batch_may_have_no_rows(target, baselines, topology, devices, functional):
    x = TensorSpec((0, 2), requires_grad=True)
    call = DataParallelCall(NewModule(WeightedLeaves), (x,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.nested-tensors")
@pytest.mark.filterwarnings(*WARNINGS)
@example_count.divide_examples(3)
@given(
    spec=jagged_specs() | masked_specs(),
    slots=device_slots(),
    entry_point=st.sampled_from(["function", "class"]),
)
@example(spec=Jagged((3, 1, 2, 4)), slots=(0, 1), entry_point="class")
@example(spec=Masked(4), slots=(0, 1), entry_point="function")
def test_nested_and_masked_inputs_give_the_results_of_the_module(
    target, topology, spec, slots, entry_point
):
    device = topology.device(slots[0])
    module = SequenceSum().to(device)
    found = wrap(target, module, topology.take(slots), entry_point)(spec.build(topology))
    expected = module(spec.build(topology).to(device))
    checks.same(found, expected, spec, tolerance=LAYER)
    gradient, expected_gradient = (
        torch.autograd.grad(output.square().sum(), module.layer.weight)[0]
        for output in (found, expected)
    )
    checks.same(gradient, expected_gradient, spec, tolerance=LAYER)
