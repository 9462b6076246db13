"""replicate: outputs of replicas and gradients of the module."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks import replica_laws as laws
from spec_tests.checks.numerical_gradients import (
    call_with_tensors,
    check_gradients,
    check_second_gradients,
)
from spec_tests.machine import profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.module_kinds import ModuleOfKind
from spec_tests.strategies.modules import Layer, module_specs
from spec_tests.strategies.replicate import law_calls, replicate_calls

#: Kinds of layers whose gradients are summed in float32 or float64.
PRECISE = tuple(kind for kind in ROW_WISE if kind != "half")
#: Kinds of layers that are smooth, so that second derivatives can be checked numerically.
SMOOTH = ("linear", "tanh", "layer_norm", "grad_buffer", "lists")
#: One strategy draws any precise kind of layer. The other draws only linear layers and layers with
#: a buffer that requires a gradient, which the first draws rarely.
CALLS = replicate_calls(kinds=PRECISE, called=True) | replicate_calls(
    kinds=("linear", "grad_buffer"), called=True
)
#: Decorator that runs a fifth of the usual number of examples, because each is slow.
FEWER_EXAMPLES = profiles.divide_examples(5)


@clause("replicate.outputs")
@given(call=law_calls(module_specs(kinds=tuple(ROW_WISE)), detach=(False, True)))
def test_replicas_return_the_outputs_of_the_module(target, topology, call):
    found, expected = laws.outputs(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("replicate.gradients.summed")
@given(call=law_calls(module_specs(kinds=PRECISE)))
def test_gradients_of_replicas_are_summed_in_the_module(target, topology, call):
    found, expected = laws.gradients(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER, place="gradient")


@clause("replicate.gradients.agree")
@given(call=CALLS)
def test_every_leaf_gets_the_gradient_of_the_reference(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.gradients.twice")
@FEWER_EXAMPLES
@given(spec=module_specs(kinds=SMOOTH, dtypes=(torch.float64,), max_layers_per_level=2))
def test_second_derivatives_flow_through_replicas(target, topology, spec):
    module, devices = spec.append(Layer("linear")).build(topology), topology.take(2)
    rows = spec.rows(2).build(topology).remainder(3)

    def outputs():
        replicas = target.replicate.replicate(module, devices)
        found = [
            replica(rows.to(device)) for replica, device in zip(replicas, devices, strict=True)
        ]
        return torch.cat([output.to(rows.device) for output in found])

    named = laws.named_tensors(module)
    names = list({id(leaf): name for name, leaf in named.items() if leaf.requires_grad}.values())

    def outputs_of(*leaves):
        return call_with_tensors(outputs, module, dict(zip(names, leaves, strict=True)))

    leaves = [named[name] for name in names]
    check_gradients(outputs_of, leaves)
    check_second_gradients(outputs_of, leaves)


@clause("replicate.zero-grad")
@given(detach=st.booleans())
def test_zero_grad_of_a_replica_warns(target, topology, detach):
    # PyTorch 1.3: zero_grad silently did nothing, and gradients exploded (#31768).
    module = ModuleOfKind("linear").build(topology)
    for replica in target.replicate.replicate(module, topology.take(2), detach):
        with pytest.warns(UserWarning, match="has no effect"):
            replica.zero_grad()
