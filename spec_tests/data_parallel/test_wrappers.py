"""DataParallel: inputs whose class implements the operations itself."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.checks import LAYER
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.tensors import device_slots
from spec_tests.strategies.wrappers import (
    WARNINGS,
    Jagged,
    Masked,
    SequenceSum,
    jagged_specs,
    masked_specs,
)

pytestmark = pytest.mark.filterwarnings(*WARNINGS)


@clause("data_parallel.nested-tensors")
@example_count.divide_examples(3)
@given(spec=jagged_specs() | masked_specs(), slots=device_slots(), functional=st.booleans())
@example(spec=Jagged((3, 1, 2, 4)), slots=(0, 1), functional=False)
@example(spec=Masked(4), slots=(0, 1), functional=True)
def test_a_module_computes_with_them_as_it_does_alone(target, topology, spec, slots, functional):
    first = topology.device(slots[0])
    module = SequenceSum().to(first)
    part, devices = target.data_parallel, topology.take(slots)
    inputs = spec.build(topology)
    found = (
        part.data_parallel(module, inputs, devices)
        if functional
        else part.DataParallel(module, devices)(inputs)
    )
    alone = module(spec.build(topology).to(first))
    checks.same(found, alone, spec, tolerance=LAYER)
    of_wrapped, of_module = (
        torch.autograd.grad(each.square().sum(), module.layer.weight)[0] for each in (found, alone)
    )
    checks.same(of_wrapped, of_module, spec, tolerance=LAYER)
