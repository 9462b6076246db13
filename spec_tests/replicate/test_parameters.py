"""replicate: copies of parameters."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.replica_laws import former_parameters, replica_tensors
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.edge_case_modules import EdgeCaseModule
from spec_tests.strategies.modules import Layer, ModuleSpec, module_specs
from spec_tests.strategies.replicate import edge_case_module_calls, replicate_calls
from spec_tests.strategies.tensors import device_slots

#: Decorator that runs a quarter of the usual number of examples, because each is slow.
FEWER_EXAMPLES = example_count.divide_examples(4)
NETWORK = ModuleSpec((Layer("linear"), Layer("linear", frozen=True), Layer("batch_norm")))


@clause("replicate.parameters.are-attributes")
@given(spec=module_specs(), slots=device_slots())
def test_replicas_have_no_parameters(target, topology, spec, slots):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([list(replica.parameters()) for replica in replicas], [[] for _ in slots], spec)


@clause("replicate.parameters.former")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_former_parameters_lists_the_copies_by_name(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    pairs = [former_parameters(replica, module) for replica in replicas]
    checks.same([found for found, _ in pairs], [expected for _, expected in pairs], spec)


@clause("replicate.parameters.copies")
@given(call=replicate_calls(kinds=("linear", "scalar", "double", "half"), detach=(False,)))
def test_copies_require_a_gradient_like_their_parameters(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.parameters.row-major")
@given(call=replicate_calls(kinds=("channels_last", "linear")))
def test_copies_on_other_devices_are_row_major(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.parameters.detached")
@given(call=replicate_calls(kinds=("linear", "none_entries", "batch_norm"), detach=(True,)))
def test_detached_copies_are_leaves_that_require_no_gradient(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.parameters.detached-first")
@given(spec=module_specs(), count=st.integers(1, 3))
def test_the_first_detached_replica_shares_the_parameters(target, topology, spec, count):
    module = spec.build(topology)
    first, *_ = target.replicate.replicate(module, topology.take(count), True)
    checks.same([*map(id, first.parameters())], [*map(id, module.parameters())], spec)


@clause("replicate.parameters.frozen")
@given(slots=device_slots())
def test_a_copy_requires_a_gradient_if_its_parameter_does(target, topology, slots):
    # PyTorch 0.3: every output of Broadcast required a gradient if one input did (#5041).
    module = NETWORK.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    found = [
        (replica[0].weight.requires_grad, replica[1].weight.requires_grad) for replica in replicas
    ]
    checks.same(found, [(True, False)] * len(slots), slots)


@clause("replicate.parameters.complex")
@given(slots=device_slots(), detach=st.booleans())
def test_complex_parameters_stay_complex(target, topology, slots, detach):
    # Up to PyTorch 2.10 complex copies were real views with a last dimension of 2 (#135462).
    module = EdgeCaseModule("complex").build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    found = [replica.scale.tolist() for replica in replicas]
    checks.same(found, [module.scale.tolist()] * len(slots), slots)


@clause("replicate.parameters.empty")
@given(shape=st.sampled_from([(0,), (0, 3), (3, 0, 2), ()]), slots=device_slots())
def test_empty_and_scalar_parameters_keep_their_shape(target, topology, shape, slots):
    module = nn.ParameterList([torch.ones(shape), torch.ones(2)]).to(topology.device(slots[0]))
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same([tuple(replica[0].shape) for replica in replicas], [shape] * len(slots), slots)


@clause("replicate.parameters.large")
@FEWER_EXAMPLES
@given(call=edge_case_module_calls("large"))
def test_parameters_larger_than_the_broadcast_buffer_are_copied(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.parameters.refuse-in-place")
@given(spec=module_specs(), slots=device_slots())
def test_the_first_replica_refuses_in_place_changes_like_the_module(target, topology, spec, slots):
    module = spec.append(Layer("linear"), Layer("linear")).build(topology, slots[0])
    before = [parameter.tolist() for parameter in module.parameters()]
    first, *_ = target.replicate.replicate(module, topology.take(slots))
    for parameter in (module[-1].weight, module[-1].bias, first[-1].weight, first[-1].bias):
        with pytest.raises(RuntimeError):
            parameter.mul_(2)
    checks.same([parameter.tolist() for parameter in module.parameters()], before, spec)


@clause("replicate.parameters.versions")
@given(spec=module_specs(), detach=st.booleans())
def test_writing_to_one_copy_keeps_the_versions_of_the_others(target, topology, spec, detach):
    # PyTorch 0.4: tensors of one broadcast shared a version counter (#13594).
    topology.require(distinct=2)
    module = spec.append(Layer("linear"), Layer("counter")).build(topology)
    _, replica = target.replicate.replicate(module, topology.take(2), detach)
    written, *others = {
        id(copy): copy for copy in replica_tensors(replica, module).values()
    }.values()
    before = [copy._version for copy in others]
    with torch.no_grad():
        written.add_(1)
    checks.same([copy._version for copy in others], before, spec)
