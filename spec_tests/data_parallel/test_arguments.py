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
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.data_parallel import (
    DataParallelCall,
    NewModule,
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


@clause("data_parallel.inputs")
@pytest.mark.parametrize("inputs", [None, (), X, [X, X], {"x": X}, (X, X), "text"], ids=repr)
@pytest.mark.parametrize("keywords", [{}, {"y": X}], ids="module_kwargs={}".format)
def test_only_a_tuple_is_unpacked_into_several_arguments(
    target, baselines, topology, inputs, keywords
):
    call = DataParallelCall(NewModule(ArgumentCounts), inputs, keywords, DEVICES, functional=True)
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
