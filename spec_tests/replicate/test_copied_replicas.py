"""replicate: deep copies of replicas, which are wrong in the reference (RE-4), and saved ones."""

import copy
import io
import pickle
import pickletools

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.replica_laws import named_tensors, replica_tensors
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine import profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies.modules import PICKLABLE, SEPARATE, Layer, ModuleSpec, module_specs
from spec_tests.strategies.replicate import slot_lists
from spec_tests.strategies.tensors import device_slots

LINEAR = ModuleSpec((Layer("linear"),))


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


#: Decorator that runs half of the usual number of examples, because each is slow.
FEWER_EXAMPLES = profiles.divide_examples(2)


def save_and_load(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickle_and_unpickle(module):
    return pickle.loads(pickle.dumps(module))


@clause("replicate.saved")
@pytest.mark.parametrize("copy", [save_and_load, pickle_and_unpickle])
@FEWER_EXAMPLES
@given(spec=module_specs(kinds=PICKLABLE), slots=slot_lists(max_size=2), detach=st.booleans())
def test_loaded_replicas_compute_the_outputs_of_the_saved_ones(
    target, topology, copy, spec, slots, detach
):
    # PyTorch 1.5: torch.save failed, because replicas have plain tensors as parameters (#37182).
    module, devices = spec.build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    for replica, device in zip(replicas, devices, strict=True):
        rows = spec.rows(2, slot=None).build(topology).to(device)
        loaded = copy(replica)
        checks.same(loaded(rows), replica(rows), spec)


@clause("replicate.saved")
@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
def test_a_pickled_replica_does_not_refer_to_the_target(target, topology, detach):
    module = nn.Linear(2, 2).to(topology.device(0))
    for replica in target.replicate.replicate(module, topology.take(2), detach):
        pickled = pickle.dumps(replica, protocol=2)
        names = [name for code, name, _ in pickletools.genops(pickled) if code.name == "GLOBAL"]
        assert "torch.nn.modules.linear Linear" in names
        checks.same([name for name in names if name.startswith(f"{target.name}.")], [])
