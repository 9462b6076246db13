"""replicate: saving and freeing of replicas."""

import io
import pickle
import pickletools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.lifetimes import leaked_objects
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.calls import DistinctDevices, PublicCall
from spec_tests.strategies.layers import KINDS
from spec_tests.strategies.modules import module_specs
from spec_tests.strategies.replicate import slot_lists

#: Kinds of layers without parametrizations. A parametrized layer gets a class of its own, which
#: cannot be pickled and is part of a reference cycle.
PICKLABLE = tuple(kind for kind in KINDS if kind not in ("weight_norm", "orthogonal"))
#: Decorator that runs half of the usual number of examples, because each is slow.
FEWER_EXAMPLES = example_count.divide_examples(2)


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
        assert [name for name in names if name.startswith(f"{target.name}.")] == []


@clause("replicate.leaves-nothing")
@given(spec=module_specs(kinds=PICKLABLE), slots=slot_lists(), detach=st.booleans())
def test_replicas_are_freed_without_garbage_collection(target, topology, spec, slots, detach):
    arguments = {"network": spec, "devices": DistinctDevices((0, *slots)), "detach": detach}
    call = PublicCall("replicate.replicate", arguments)
    checks.same(leaked_objects(call, target, topology), [], call)
