"""replicate: the tree of modules and its shared objects."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.replica_laws import (
    attribute_ids,
    first_names,
    modules_with_paths,
    named_tensors,
    replica_tensors,
)
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.modules import (
    Layer,
    ModuleSpec,
    ResidualSpec,
    SharedLayer,
    TiedLinear,
    module_specs,
)
from spec_tests.strategies.replicate import replicate_calls
from spec_tests.strategies.tensors import device_slots

NETWORK = ModuleSpec((Layer("linear"), Layer("batch_norm")))


@clause("replicate.structure")
@given(call=replicate_calls())
def test_replicas_have_the_structure_of_the_module(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.one-per-device")
@given(spec=module_specs(), slots=device_slots())
def test_replicate_returns_one_replica_per_device(target, topology, spec, slots):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same((type(replicas), len(replicas)), (list, len(slots)), spec)


@clause("replicate.no-device")
@given(spec=module_specs(), detach=st.booleans())
def test_replicate_to_an_empty_device_list_returns_an_empty_list(target, topology, spec, detach):
    checks.same(target.replicate.replicate(spec.build(topology), [], detach), [], spec)


@clause("replicate.on-its-device")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_all_tensors_of_a_replica_are_on_its_device(target, topology, spec, slots, detach):
    module, devices = spec.build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    found = [
        [copy.device for copy in replica_tensors(replica, module).values()] for replica in replicas
    ]
    checks.same(found, [[device] * len(named_tensors(module)) for device in devices], spec)


@clause("replicate.device-spellings")
@pytest.mark.parametrize("spelling", ["device", "ordinal", "text"])
@given(slots=device_slots())
def test_devices_may_be_ordinals_strings_or_devices(target, topology, spelling, slots):
    devices = [DeviceAt(slot, spelling).build(topology) for slot in slots]
    replicas = target.replicate.replicate(NETWORK.build(topology, slots[0]), devices)
    checks.same([replica[0].weight.device for replica in replicas], topology.take(slots), slots)


@clause("replicate.shared-modules")
@given(
    parts=st.lists(st.sampled_from(["linear", "tanh", "lstm", "batch_norm"]), min_size=1),
    slots=device_slots(),
)
def test_a_shared_module_is_one_object_in_each_replica(target, topology, parts, slots):
    layers = tuple(map(Layer, parts))
    module = ModuleSpec(
        (*layers, ResidualSpec((SharedLayer(0), Layer("tanh"))), SharedLayer(0))
    ).build(topology, slots[0])
    for replica in target.replicate.replicate(module, topology.take(slots)):
        checks.same(
            first_names(dict(modules_with_paths(replica))),
            first_names(dict(modules_with_paths(module))),
            parts,
        )


@clause("replicate.tied-parameters")
@given(
    spec=module_specs(kinds=("linear", "linear_without_bias", "two_names", "shared_memory")),
    slots=device_slots(),
    detach=st.booleans(),
)
def test_tied_parameters_stay_tied(target, topology, spec, slots, detach):
    spec = spec.append(Layer("linear"), Layer("two_names"), TiedLinear(spec.layer_count))
    tied = spec.build(topology, slots[0])
    for replica in target.replicate.replicate(tied, topology.take(slots), detach):
        checks.same(
            first_names(replica_tensors(replica, tied)), first_names(named_tensors(tied)), spec
        )


@clause("replicate.shared-buffers")
@given(
    spec=module_specs(kinds=("shared_buffer", "tanh")), slots=device_slots(), detach=st.booleans()
)
def test_shared_buffers_stay_shared(target, topology, spec, slots, detach):
    shared = spec.append(Layer("shared_buffer")).build(topology, slots[0])
    for replica in target.replicate.replicate(shared, topology.take(slots), detach):
        checks.same(
            first_names(replica_tensors(replica, shared)), first_names(named_tensors(shared)), spec
        )


@clause("replicate.none-entries")
@given(call=replicate_calls(kinds=("none_entries", "linear_without_bias"), called=True))
def test_none_parameters_buffers_and_children_stay_none(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.training-mode")
@given(modes=st.lists(st.booleans(), min_size=2, max_size=2))
def test_every_module_keeps_its_mode(target, topology, modes):
    module = NETWORK.build(topology)
    for child, mode in zip(module, modes, strict=True):
        child.train(mode)
    for replica in target.replicate.replicate(module, topology.take(2)):
        checks.same([child.training for child in replica], modes)


@clause("replicate.is-replica")
@given(spec=module_specs())
def test_only_modules_of_replicas_have_is_replica(target, topology, spec):
    module = spec.build(topology)
    replicas = target.replicate.replicate(module, topology.take(2))
    flags = {
        getattr(each, "_is_replica", False)
        for replica in replicas
        for _, each in modules_with_paths(replica)
    }
    checks.same(flags, {True}, spec)
    checks.same(
        any(hasattr(each, "_is_replica") for _, each in modules_with_paths(module)), False, spec
    )


@clause("replicate.attributes")
@given(slots=device_slots())
def test_replicas_share_ordinary_attributes_with_the_module(target, topology, slots):
    module = NETWORK.build(topology, slots[0])
    module.kept = {"list": [torch.ones(2)], "itself": object()}
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same({id(replica.kept) for replica in replicas}, {id(module.kept)}, slots)


@clause("replicate.own-entries")
@given(slots=device_slots(min_size=2))
def test_attributes_set_on_a_replica_do_not_change_other_modules(target, topology, slots):
    # PyTorch 0.4: the first replica was the module itself (#11476).
    module = NETWORK.build(topology, slots[0])
    changed, *others = target.replicate.replicate(module, topology.take(slots))
    before = [attribute_ids(each) for each in (module, *others)]
    changed.note = 1
    changed.register_buffer("extra", torch.ones(1))
    changed.register_parameter("more", torch.nn.Parameter(torch.ones(1)))
    changed.add_module("added", torch.nn.Tanh())
    checks.same([attribute_ids(each) for each in (module, *others)], before, slots)


@clause("replicate.original-unchanged")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_replicate_leaves_the_module_unchanged(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    before = attribute_ids(module), snapshot(named_tensors(module), {})
    target.replicate.replicate(module, topology.take(slots), detach)
    checks.same(attribute_ids(module), before[0], spec)
    checks.same(snapshot(named_tensors(module), {}), before[1], spec)


@clause("replicate.afresh")
@given(slots=device_slots(), detach=st.booleans())
def test_every_call_replicates_the_current_module(target, topology, slots, detach):
    module, devices = NETWORK.build(topology, slots[0]), topology.take(slots)
    target.replicate.replicate(module, devices, detach)
    module[0].weight.data.fill_(3)
    module.append(torch.nn.Tanh())
    module.note = "new"
    module[1].eval()
    for replica in target.replicate.replicate(module, devices, detach):
        found = replica[0].weight.unique().tolist(), len(replica), replica.note
        checks.same(found, ([3.0], 3, "new"), slots)
        modes = [part.training for part in replica.modules()]
        checks.same(modes, [part.training for part in module.modules()], slots)
