"""replicate: the tree of modules, its shared objects, and facts that hold for each replica."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.replica_laws import (
    attribute_ids,
    check_attributes_kept,
    first_names,
    flat_weights_are_shared,
    hook_dictionaries,
    modules_with_paths,
    named_tensors,
    replica_tensors,
)
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.module_kinds import ModuleOfKind
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


class LabelDeleted(nn.Linear):
    """A linear layer whose ``__new__`` sets an attribute that its ``__init__`` deletes."""

    def __new__(cls):
        instance = super().__new__(cls)
        vars(instance)["label"] = "new"
        return instance

    def __init__(self):
        super().__init__(WIDTH, WIDTH)
        del self.label


class ModuleWithStoredMethods(nn.Module):
    """A module that stores one of its methods, and a method of its child, as attributes."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)
        self.own_method = self.forward
        self.child_method = self.child.forward

    def forward(self, x):
        return self.child_method(x)


def _on_device(module_class):
    return lambda topology, slot: module_class().to(topology.device(slot))


def _with_attribute(topology, slot):
    module = NETWORK.build(topology, slot)
    module.kept = {"list": [torch.ones(2)], "itself": object()}
    return module


def _in_both_modes(topology, slot):
    module = NETWORK.build(topology, slot)
    module[1].eval()
    return module


def _with_empty_parameters(topology, slot):
    shapes = [(0,), (2,), (0, 3), (3, 0, 2), ()]
    return nn.ParameterList([*map(torch.ones, shapes)]).to(topology.device(slot))


#: For each clause: a function that makes a module on a device, the place of a fact, and a function
#: that returns the fact about the module or a replica.
FACTS = {
    "replicate.shared-modules": (
        ModuleSpec(
            (
                *(Layer("lstm"), Layer("linear"), Layer("batch_norm")),
                *(ResidualSpec((SharedLayer(0), Layer("tanh"))), SharedLayer(0), SharedLayer(1)),
            )
        ).build,
        "shared_modules",
        lambda module: first_names(dict(modules_with_paths(module))),
    ),
    "replicate.training-mode": (
        _in_both_modes,
        "training",
        lambda module: [each.training for each in module.modules()],
    ),
    "replicate.attributes": (_with_attribute, "attributes", lambda module: id(module.kept)),
    # Up to PyTorch 2.10 complex copies were real views with a last dimension of 2 (#135462).
    "replicate.parameters.complex": (
        ModuleOfKind("complex").build,
        "tensors",
        lambda module: module.scale.tolist(),
    ),
    "replicate.parameters.empty": (
        _with_empty_parameters,
        "tensors",
        lambda module: [tuple(module[index].shape) for index in range(5)],
    ),
    "replicate.buffers.parameters": (
        ModuleSpec((Layer("parameter_as_buffer"),)).build,
        "sharing",
        lambda module: module[0].buffer is module[0].weight,
    ),
    "replicate.buffers.persistence": (
        ModuleSpec((Layer("grad_buffer"),)).build,
        "state_dict",
        lambda module: list(module.state_dict()),
    ),
    "replicate.overrides.attributes-of-new": (
        _on_device(LabelDeleted),
        "attributes",
        lambda module: hasattr(module, "label"),
    ),
    # PyTorch 1.4: replicate overwrote the module's own list of flattened weights (#33552).
    "replicate.zoo.flat-weights": (ModuleOfKind("lstm").build, "sharing", flat_weights_are_shared),
    "divergences.RE-2.bound-methods-are-rebound": (
        _on_device(ModuleWithStoredMethods),
        "output",
        lambda module: (
            module.own_method.__self__ is module and module.child_method.__self__ is module.child
        ),
    ),
    "divergences.RE-3.hooks-are-kept": (
        ModuleOfKind("hooks").build,
        "output",
        lambda module: [list(hooks.values()) for hooks in hook_dictionaries(module).values()],
    ),
}


@cases("name", {name: [name] for name in FACTS})
@given(slots=device_slots(), detach=st.booleans())
@example(slots=(0, 1), detach=False)
def test_replicas_agree_with_the_module_on_a_fact(target, topology, name, slots, detach):
    make, place, fact = FACTS[name]
    module = make(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    expected = [fact(module)] * len(slots)
    checks.same([*map(fact, replicas)], expected, slots, place=place)


@clause("replicate.structure")
@given(call=replicate_calls())
def test_replicas_have_the_structure_of_the_module(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.none-entries")
@given(call=replicate_calls(kinds=("none_entries",)))
def test_entries_that_are_none_stay_none(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("replicate.one-per-device")
@clause("replicate.on-its-device")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_each_device_has_a_replica_with_all_its_tensors(target, topology, spec, slots, detach):
    module, devices = spec.build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    checks.same((type(replicas), len(replicas)), (list, len(slots)), spec)
    found = [
        [copy.device for copy in replica_tensors(replica, module).values()] for replica in replicas
    ]
    expected = [[device] * len(named_tensors(module)) for device in devices]
    checks.same(found, expected, spec, place="device")


@clause("replicate.no-device")
@given(spec=module_specs(), detach=st.booleans())
def test_replicate_to_an_empty_device_list_returns_an_empty_list(target, topology, spec, detach):
    checks.same(target.replicate.replicate(spec.build(topology), [], detach), [], spec)


@clause("replicate.device-spellings")
@pytest.mark.parametrize("spelling", ["device", "ordinal", "text"])
@given(slots=device_slots())
def test_devices_may_be_ordinals_strings_or_devices(target, topology, spelling, slots):
    devices = [DeviceAt(slot, spelling).build(topology) for slot in slots]
    replicas = target.replicate.replicate(NETWORK.build(topology, slots[0]), devices)
    checks.same([replica[0].weight.device for replica in replicas], topology.take(slots), slots)


@clause("replicate.tied-parameters")
@given(
    spec=module_specs(kinds=("linear", "linear_without_bias", "two_names")),
    slots=device_slots(),
    detach=st.booleans(),
)
def test_tied_parameters_stay_tied(target, topology, spec, slots, detach):
    parts = [*map(Layer, ("linear", "two_names", "linear_without_bias"))]
    number = spec.layer_count
    module = spec.append(*parts, TiedLinear(number), SharedLayer(number)).build(topology, slots[0])
    expected = first_names(named_tensors(module))
    for replica in target.replicate.replicate(module, topology.take(slots), detach):
        found = first_names(replica_tensors(replica, module))
        checks.same(found, expected, spec, place="sharing")


@clause("replicate.shared-buffers")
@given(
    spec=module_specs(kinds=("shared_buffer", "tanh")), slots=device_slots(), detach=st.booleans()
)
def test_shared_buffers_stay_shared(target, topology, spec, slots, detach):
    module = spec.append(Layer("shared_buffer")).build(topology, slots[0])
    expected = first_names(named_tensors(module))
    for replica in target.replicate.replicate(module, topology.take(slots), detach):
        found = first_names(replica_tensors(replica, module))
        checks.same(found, expected, spec, place="shared_buffers")


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
    checks.same(flags, {True}, spec, place="is_replica")
    found = any(hasattr(each, "_is_replica") for _, each in modules_with_paths(module))
    checks.same(found, False, spec, place="is_replica")


@clause("replicate.own-entries")
@given(slots=device_slots(min_size=2))
def test_attributes_set_on_a_replica_do_not_change_other_modules(target, topology, slots):
    # PyTorch 0.4: the first replica was the module itself (#11476).
    module = NETWORK.build(topology, slots[0])
    changed, *others = target.replicate.replicate(module, topology.take(slots))
    before = [(each, attribute_ids(each)) for each in (module, *others)]
    changed.note = 1
    changed.register_buffer("extra", torch.ones(1))
    changed.register_parameter("more", torch.nn.Parameter(torch.ones(1)))
    changed.add_module("added", torch.nn.Tanh())
    for other, ids in before:
        check_attributes_kept(other, ids, slots)


@clause("replicate.original-unchanged")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_replicate_leaves_the_module_unchanged(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    before = attribute_ids(module), snapshot(named_tensors(module), {})
    target.replicate.replicate(module, topology.take(slots), detach)
    check_attributes_kept(module, before[0], spec)
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


@clause("replicate.afresh")
@pytest.mark.parametrize("training", [True, False], ids="training={}".format)
@given(slots=device_slots(), detach=st.booleans())
def test_every_call_copies_the_current_values(target, topology, training, slots, detach):
    module, devices = NETWORK.build(topology, slots[0]).train(training), topology.take(slots)
    for value in (3.0, 5.0):
        with torch.no_grad():
            module[0].weight.fill_(value)
            module[1].running_mean.fill_(value)
        for replica in target.replicate.replicate(module, devices, detach):
            found = {"weight": replica[0].weight, "buffer": replica[1].running_mean}
            found = {name: tensor.unique().tolist() for name, tensor in found.items()}
            checks.same(found, {"weight": [value], "buffer": [value]}, slots)
