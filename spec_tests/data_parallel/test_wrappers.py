"""DataParallel: nested and masked tensors as inputs."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.checks import LAYER
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.data_parallel import FUNCTIONAL
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    SequenceSum,
    jagged_specs,
    masked_specs,
)
from spec_tests.strategies.tensors import device_slots

pytestmark = pytest.mark.filterwarnings(*WARNINGS)


@clause("data_parallel.nested-tensors")
@example_count.divide_examples(3)
@given(spec=jagged_specs() | masked_specs(), slots=device_slots(), functional=FUNCTIONAL)
@example(spec=Jagged((3, 1, 2, 4)), slots=(0, 1), functional=False)
@example(spec=Masked(4), slots=(0, 1), functional=True)
def test_nested_and_masked_inputs_give_the_results_of_the_module(
    target, topology, spec, slots, functional
):
    device = topology.device(slots[0])
    module = SequenceSum().to(device)
    library, devices = target.data_parallel, topology.take(slots)
    inputs = spec.build(topology)
    found = (
        library.data_parallel(module, inputs, devices)
        if functional
        else library.DataParallel(module, devices)(inputs)
    )
    expected = module(spec.build(topology).to(device))
    checks.same(found, expected, spec, tolerance=LAYER)
    gradient, expected_gradient = (
        torch.autograd.grad(output.square().sum(), module.layer.weight)[0]
        for output in (found, expected)
    )
    checks.same(gradient, expected_gradient, spec, tolerance=LAYER)
