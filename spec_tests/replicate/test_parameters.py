"""replicate: copies of parameters and buffers."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.replica_laws import modules_with_paths, replica_tensors
from spec_tests.checks.replica_structure import replica_structure
from spec_tests.machine.clauses import clause
from spec_tests.strategies.modules import SEPARATE, Layer, ModuleSpec, module_specs
from spec_tests.strategies.replicate import ReplicateCall, replicate_calls
from spec_tests.strategies.tensors import device_slots

#: Kinds of layers whose parameters have different dtypes, strides or neighbours.
COPIED = ("linear", "scalar", "double", "half", "channels_last", "none_entries", "batch_norm")
NETWORK = ModuleSpec((Layer("linear"), Layer("linear", frozen=True), Layer("batch_norm")))


@clause("replicate.parameters.are-attributes")
@given(spec=module_specs(kinds=SEPARATE), slots=device_slots())
def test_replicas_have_no_parameters(target, topology, spec, slots):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    found = [list(replica.parameters()) for replica in replicas]
    checks.same(found, [[] for _ in slots], spec, place="parameters")


@clause("replicate.parameters.former")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_former_parameters_lists_the_copies_by_name(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    expected = {
        path: {
            name: "the replica's object"
            for name, value in each._parameters.items()
            if value is not None
        }
        for path, each in modules_with_paths(module)
    }
    for replica in replicas:
        parts = replica_structure(replica, module).items()
        found = {path: part["former_parameters"] for path, part in parts}
        checks.same(found, expected, spec, place="former_parameters")


@clause("replicate.parameters.copies")
@clause("replicate.parameters.row-major")
@clause("replicate.parameters.detached")
@given(call=replicate_calls(kinds=COPIED))
@example(
    call=ReplicateCall(ModuleSpec((Layer("none_entries"), Layer("batch_norm"))), (0, 1), True)
)
def test_copies_are_row_major_and_require_a_gradient_unless_detached(
    target, baselines, topology, call
):
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


@clause("replicate.parameters.refuse-in-place")
@given(spec=module_specs(), slots=device_slots())
def test_the_first_replica_refuses_in_place_changes_like_the_module(target, topology, spec, slots):
    module = spec.append(Layer("linear"), Layer("linear")).build(topology, slots[0])
    before = [parameter.tolist() for parameter in module.parameters()]
    first, *_ = target.replicate.replicate(module, topology.take(slots))
    checks.shares_memory(first[-1].weight, module[-1].weight, place="tensors")
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


#: Kinds of layers with buffers.
BUFFERED = ("batch_norm", "counter", "grad_buffer", "shared_buffer")
COUNTER = ModuleSpec((Layer("counter"),))


@clause("replicate.buffers.copies")
@given(call=replicate_calls(kinds=BUFFERED, called=True))
def test_buffers_are_copied_as_buffers(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.buffers.copies")
@given(slots=device_slots(), detach=st.booleans())
def test_buffers_that_are_parts_of_one_tensor_are_copied_each(target, topology, slots, detach):
    module, whole = torch.nn.Module(), torch.arange(4.0, device=topology.device(slots[0]))
    for name, part in zip(("first", "last"), whole.split(2), strict=True):
        module.register_buffer(name, part)
    for replica in target.replicate.replicate(module, topology.take(slots), detach):
        found = [replica.first.tolist(), replica.last.tolist()]
        checks.same(found, [[0.0, 1.0], [2.0, 3.0]], slots)


@clause("replicate.buffers.requiring-grad")
@given(call=replicate_calls(kinds=("grad_buffer",), called=True))
def test_buffers_that_require_a_gradient_get_one(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.buffers.first-is-the-modules")
@given(
    spec=module_specs(kinds=("batch_norm", "counter")), slots=device_slots(), detach=st.booleans()
)
def test_the_first_replica_shares_the_modules_buffers(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    first, *_ = target.replicate.replicate(module, topology.take(slots), detach)
    own = dict(module.named_buffers())
    found = {name: each is own.get(name) for name, each in first.named_buffers()}
    checks.same(found, dict.fromkeys(own, True), spec, place="is the module's own buffer")


@clause("replicate.buffers.updates-of-the-first-last")
@given(slots=device_slots(), runs=st.lists(st.integers(0, 3), max_size=4), detach=st.booleans())
@example(slots=(0, 0, 0), runs=[1], detach=False)
def test_only_buffer_updates_of_the_first_replica_are_kept(target, topology, slots, runs, detach):
    # PyTorch 1.0: the fix of #11476 lost the statistics of the first replica (#12671, #13350).
    module, devices = COUNTER.build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    runs = [run % len(slots) for run in runs]
    for index in runs:
        replicas[index](torch.ones(2, 4, device=devices[index]))
    found = [each[0].mean.tolist() for each in (module, *replicas)]
    checks.same(found, [[2.0 * runs.count(i)] * 4 for i in (0, *range(len(slots)))], runs)
