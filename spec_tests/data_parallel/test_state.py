"""DataParallel: attributes, parameters, buffers and saving."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import any_device, device_lists, distinct_devices
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    AttributesCall,
    DataParallelCall,
    NewModule,
    network_calls,
)
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.tensors import TensorSpec, device_slots


class StateUpdater(nn.Module):
    """A module that writes one buffer in place, replaces another, and sets an attribute."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))
        self.rows = 0

    def forward(self, x):
        self.seen += x.sum()
        self.last = x.sum().reshape(1)
        self.rows = len(x)
        return x


def wrapped_linear(target, topology):
    devices = topology.take([0, 0])
    return target.data_parallel.DataParallel(nn.Linear(2, 2).to(devices[0]), devices)


@clause("data_parallel.state.attributes")
@given(
    devices=st.none() | device_lists(),
    output=st.none() | any_device(),
    dim=st.sampled_from([0, 1]),
)
def test_the_constructor_stores_its_arguments_as_attributes(
    target, baselines, topology, devices, output, dim
):
    arguments = {"device_ids": devices, "output_device": output, "dim": dim}
    call = AttributesCall(
        "data_parallel.DataParallel", {"module": NewModule(nn.Tanh), **arguments}
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.state.assigned-module")
@given(slots=device_slots(min_size=2))
def test_a_module_may_be_assigned_after_construction(topology, wrap, slots):
    wrapped = wrap(None, slots)
    wrapped.module = nn.Linear(2, 2).to(topology.device(slots[0]))
    x = torch.ones(3, 2, device=topology.device(slots[0]))
    checks.same(wrapped(x), wrapped.module(x), slots, tolerance=checks.LAYER)


@clause("data_parallel.state.keys")
def test_the_keys_of_the_state_begin_with_module(target, topology):
    wrapped = wrapped_linear(target, topology)
    checks.same(list(wrapped.state_dict()), ["module.weight", "module.bias"])


@clause("data_parallel.state.parameters")
def test_the_module_is_the_only_member_of_the_wrapper(target, topology):
    wrapped = wrapped_linear(target, topology)
    assert list(wrapped.parameters()) == list(wrapped.module.parameters())
    checks.same([*wrapped.named_children()], [("module", wrapped.module)])


@clause("data_parallel.state.no-forwarding")
def test_the_wrapper_lacks_the_attributes_of_the_module(target, topology):
    wrapped = wrapped_linear(target, topology)
    name = type(wrapped).__name__
    with pytest.raises(AttributeError, match=f"'{name}' object has no attribute 'weight'"):
        _ = wrapped.weight


@clause("data_parallel.state.mode")
def test_every_replica_has_the_training_mode_of_the_wrapper(target, topology):
    modes = []
    device = topology.device(0)
    module = Calls(lambda self, x: modes.append(self.training) or x)
    wrapped = target.data_parallel.DataParallel(module, [device, device]).eval()
    wrapped(torch.ones(2, device=device))
    assert modes == [False, False]


@clause("data_parallel.state.changes-between-calls")
def test_changes_of_the_module_apply_to_the_next_call(target, topology):
    wrapped = wrapped_linear(target, topology)
    x = torch.ones(4, 2, device=topology.device(0))
    wrapped(x)
    with torch.no_grad():
        wrapped.module.weight.fill_(3.0)
    wrapped.module.bias = None
    checks.same(wrapped(x).detach(), torch.full((4, 2), 6.0))


@clause("data_parallel.state.buffers")
@given(devices=distinct_devices(), rows=st.integers(1, 6), functional=FUNCTIONAL)
def test_only_the_first_replicas_in_place_buffer_changes_are_kept(
    target, baselines, topology, devices, rows, functional
):
    x = TensorSpec((rows, 2))
    call = DataParallelCall(NewModule(StateUpdater), (x,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.state.lost-attributes")
def test_attributes_that_replicas_set_are_lost(target, topology):
    device = topology.device(0)
    wrapped = target.data_parallel.DataParallel(StateUpdater().to(device), [device, device])
    wrapped(torch.ones(4, 2, device=device))
    assert wrapped.module.rows == 0
    assert wrapped.module.last.item() == 0


@clause("data_parallel.state.batch-norm")
@given(call=network_calls(kinds=("batch_norm", "counter")))
def test_running_statistics_are_those_of_the_first_chunk(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("data_parallel.state.copies")
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_a_wrapper_may_be_copied_and_pickled(target, topology, duplicate):
    wrapped = wrapped_linear(target, topology)
    x = torch.arange(8.0).to(topology.device(0)).reshape(4, 2)
    copied = duplicate(wrapped)
    checks.same(copied(x), wrapped(x))
    assert copied.module.weight is not wrapped.module.weight
