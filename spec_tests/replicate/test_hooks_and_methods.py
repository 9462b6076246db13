"""replicate: stored methods and hooks of replicas, which the reference shares: RE-2, RE-3."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.replica_laws import hook_dictionaries
from spec_tests.machine.clauses import clause
from spec_tests.strategies.modules import Layer, ModuleSpec, module_specs
from spec_tests.strategies.tensors import device_slots

LINEAR = ModuleSpec((Layer("linear"),))


@clause("divergences.RE-2.bound-methods-are-rebound")
@given(slots=device_slots())
def test_a_stored_forward_uses_the_replicas_weight(target, topology, slots):
    layer = nn.Linear(4, 4)
    layer.forward = layer.forward
    module = nn.Sequential(layer).to(topology.device(slots[0]))
    for replica in target.replicate.replicate(module, topology.take(slots)):
        replica[0].weight = torch.zeros_like(replica[0].weight)
        found = replica(torch.ones(2, 4, device=replica[0].weight.device))
        checks.same(found.tolist(), [replica[0].bias.tolist()] * 2, slots)


@clause("divergences.RE-3.hooks-are-the-replicas-own")
@given(spec=module_specs(), slots=device_slots(), detach=st.booleans())
def test_hook_dictionaries_are_not_shared(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    owners = {}
    shared = [
        name
        for network in (module, *replicas)
        for name, hooks in hook_dictionaries(network).items()
        if owners.setdefault(id(hooks), network) is not network
    ]
    checks.same({"shared hooks": shared}, {"shared hooks": []}, spec)


@clause("divergences.RE-3.hooks-are-kept")
@given(slots=device_slots(), detach=st.booleans())
def test_replicas_have_the_hooks_of_state_dict(target, topology, slots, detach):
    module, called = LINEAR.build(topology, slots[0]), []
    layer = module[0]
    layer.register_state_dict_pre_hook(lambda *_: called.append("before saving"))
    layer.register_state_dict_post_hook(lambda *_: called.append("after saving"))
    layer.register_load_state_dict_pre_hook(lambda *_: called.append("before loading"))
    layer.register_load_state_dict_post_hook(lambda *_: called.append("after loading"))
    for replica in target.replicate.replicate(module, topology.take(slots), detach):
        replica.load_state_dict(replica.state_dict(), strict=False)
    expected = ["before saving", "after saving", "before loading", "after loading"]
    checks.same(called, expected * len(slots), slots)


@clause("divergences.RE-3.hooks-are-the-replicas-own")
@given(slots=device_slots(min_size=2))
def test_a_hook_registered_on_a_replica_stays_on_it(target, topology, slots):
    module = LINEAR.build(topology, slots[0])
    hooked, *others = target.replicate.replicate(module, topology.take(slots))
    hooked[0].register_forward_hook(lambda *_: None)
    hooked[0].register_forward_pre_hook(lambda *_: None)
    hooked[0].register_state_dict_post_hook(lambda *_: None)
    found = [
        name
        for other in (module, *others)
        for name, hooks in hook_dictionaries(other).items()
        if hooks
    ]
    checks.same({"hooks of the others": found}, {"hooks of the others": []}, slots)
