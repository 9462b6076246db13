"""Methods, hooks and deep copies of replicas, which are wrong in the reference: RE-2 to RE-4."""

import copy

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.replica_laws import (
    hook_dictionaries,
    named_tensors,
    replica_tensors,
)
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.modules import SEPARATE, Layer, ModuleSpec, module_specs
from spec_tests.strategies.tensors import device_slots

METHODS_CLAUSE = clause("divergences.RE-2.bound-methods-are-rebound")
HOOKS_CLAUSE = clause("divergences.RE-3.hooks-are-the-replicas-own")
LINEAR = ModuleSpec((Layer("linear"),))


@METHODS_CLAUSE
@given(slots=device_slots())
def test_a_stored_forward_uses_the_replicas_weight(target, topology, slots):
    layer = nn.Linear(4, 4)
    layer.forward = layer.forward
    module = nn.Sequential(layer).to(topology.device(slots[0]))
    for replica in target.replicate.replicate(module, topology.take(slots)):
        replica[0].weight = torch.zeros_like(replica[0].weight)
        found = replica(torch.ones(2, 4, device=replica[0].weight.device))
        checks.same(found.tolist(), [replica[0].bias.tolist()] * 2, slots)


@HOOKS_CLAUSE
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_hook_dictionaries_are_not_shared(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    ids = [{*map(id, hook_dictionaries(network))} for network in (module, *replicas)]
    checks.same(len(set().union(*ids)), sum(map(len, ids)), spec)


@HOOKS_CLAUSE
@given(slots=device_slots(min_size=2))
def test_a_hook_registered_on_a_replica_stays_on_it(target, topology, slots):
    module = LINEAR.build(topology, slots[0])
    hooked, *others = target.replicate.replicate(module, topology.take(slots))
    hooked[0].register_forward_hook(lambda *_: None)
    hooked[0].register_forward_pre_hook(lambda *_: None)
    hooked[0].register_state_dict_post_hook(lambda *_: None)
    found = [len(hooks) for other in (module, *others) for hooks in hook_dictionaries(other)]
    checks.same(sum(found), 0, slots)


@clause("divergences.RE-4.replicas-can-be-deepcopied")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
@example(spec=LINEAR, slots=(0, 1), detach=False)
def test_a_deepcopied_replica_computes_the_same(target, topology, spec, slots, detach):
    module, devices = spec.append(Layer("linear")).build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    for replica, device in zip(replicas, devices, strict=True):
        rows = spec.rows(2, slot=None).build(topology).to(device)
        copied = copy.deepcopy(replica)
        checks.same(copied(rows), replica(rows), spec, tolerance=checks.LAYER)


@clause("divergences.RE-4.deepcopies-are-independent")
@given(spec=module_specs(kinds=SEPARATE), slots=device_slots())
def test_changes_of_a_deepcopied_replica_do_not_change_the_module(target, topology, spec, slots):
    module = spec.append(Layer("linear")).build(topology, slots[0])
    for replica in target.replicate.replicate(module, topology.take(slots)):
        before = snapshot(named_tensors(module), {})
        copied = replica_tensors(copy.deepcopy(replica), module)
        checks.same({tensor.is_leaf for tensor in copied.values()}, {True}, spec)
        tensors = replica_tensors(replica, module)
        checks.same(_require_grad(copied), _require_grad(tensors), spec)
        for tensor in copied.values():
            tensor.data.add_(1)
        checks.same(snapshot(named_tensors(module), {}), before, spec)


def _require_grad(tensors):
    return {name: tensor.requires_grad for name, tensor in tensors.items()}
