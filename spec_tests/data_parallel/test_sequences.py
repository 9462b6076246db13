"""DataParallel: nested, masked and packed inputs. The reference refuses some: SG-12, SG-13."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.checks.wrapper_laws import with_gradients
from spec_tests.machine import profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies.packed_sequences import Packed, packed_specs, unpack
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    jagged_specs,
    masked_specs,
)
from spec_tests.strategies.tensors import device_slots

pytestmark = pytest.mark.filterwarnings(*WARNINGS)


class SequenceSum(nn.Module):
    """A linear layer. Nested sequences are summed; masked elements are 0."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        if x.is_nested:
            return self.layer(x).to_padded_tensor(0.0).sum(1)
        return self.layer(x.to_tensor(0.0))


@clause("data_parallel.nested-tensors")
@profiles.divide_examples(3)
@given(
    spec=jagged_specs() | masked_specs(),
    slots=device_slots(),
    entry_point=st.sampled_from(["function", "class"]),
)
@example(spec=Jagged((3, 1, 2, 4)), slots=(0, 1), entry_point="class")
@example(spec=Masked(4), slots=(0, 1), entry_point="function")
def test_nested_and_masked_inputs_give_the_results_of_the_module(
    topology, wrap, spec, slots, entry_point
):
    device = topology.device(slots[0])
    module = SequenceSum().to(device)
    found = wrap(module, slots, entry_point)(spec.build(topology))
    expected = module(spec.build(topology).to(device))
    found, expected = (
        with_gradients(output, [module.layer.weight]) for output in (found, expected)
    )
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@clause("divergences.SG-13.training-on-nested-and-masked-tensors")
@profiles.divide_examples(3)
@given(
    spec=jagged_specs(grads=(True,), slots=(0, 1, None))
    | masked_specs(grads=(True,), slots=(0, 1, None)),
    slots=device_slots(),
)
@example(spec=Jagged((3, 1, 2, 4), requires_grad=True), slots=(0, 1))
@example(spec=Masked(4, requires_grad=True), slots=(0, 1))
def test_gradient_of_an_input_equals_its_gradient_without_the_wrapper(
    target, topology, spec, slots
):
    module = SequenceSum().to(topology.device(slots[0]))
    wrapped_input, module_input = (
        spec.build(topology),
        replace(spec, slot=slots[0]).build(topology),
    )
    wrapped = target.data_parallel.DataParallel(module, topology.take(slots))
    for function, inputs in ((wrapped, wrapped_input), (module, module_input)):
        function(inputs).square().sum().backward()
    checks.same(
        _elements(wrapped_input.grad), _elements(module_input.grad), spec, tolerance=checks.LAYER
    )


def _elements(tensor):
    return tensor.values() if tensor.is_nested else tensor.to_tensor(0.0)


def _values(found):
    return snapshot(list(found), {}, strides=False)


@clause("divergences.SG-12.recurrent-layers-on-packed-input")
@profiles.divide_examples(3)
@given(
    spec=packed_specs(dtypes=(torch.float32, torch.float64), grads=(True,)), slots=device_slots()
)
@example(spec=Packed((3, 2, 1), is_sorted=True, requires_grad=True), slots=(0, 1))
@example(spec=Packed((1, 3, 2), requires_grad=True), slots=(0, 1))
def test_a_wrapped_recurrent_layer_matches_the_layer_alone(target, topology, spec, slots):
    computed(["lstm"])
    module = Calls(lambda self, packed: self.layer(packed)[0], layer=nn.LSTM(spec.width, 3))
    module.to(topology.device(slots[0]), spec.dtype)
    wrapped = target.data_parallel.DataParallel(module, topology.take(slots))
    packed = spec.build(topology)
    found, expected = wrapped(packed), module(packed.to(topology.device(slots[0])))
    checks.same(_values(unpack(found)), _values(unpack(expected)), spec, tolerance=checks.LAYER)
    leaves = [packed.data, *module.parameters()]
    gradients, expected_gradients = (
        torch.autograd.grad(output.data.square().sum(), leaves) for output in (found, expected)
    )
    checks.same(_values(gradients), _values(expected_gradients), spec, tolerance=checks.LAYER)
