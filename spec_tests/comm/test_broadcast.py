"""comm.broadcast: copies of one tensor on many devices."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.tensors import address_ranges, find_overlaps
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import broadcast_calls, dense, sparse_broadcast_calls
from spec_tests.strategies.tensors import TensorSpec, counting


@clause("comm.broadcast.copies")
@given(call=broadcast_calls())
def test_every_device_gets_a_copy_of_the_tensor(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.own-device-is-the-input")
def test_input_device_gets_the_input_itself(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    first, second = target.comm.broadcast(tensor, [topology.device(0)] * 2)
    assert first is tensor
    assert second is tensor


@clause("comm.broadcast.copies-are-independent")
@pytest.mark.parametrize("source", [None, 1], ids=["from-cpu", "from-device"])
def test_two_copies_on_one_device_share_no_memory(target, topology, source):
    topology.require(distinct=2)
    tensor = counting((4, 2), torch.float32, topology.device(source))
    copies = target.comm.broadcast(tensor, [topology.device(0)] * 2)
    assert find_overlaps(address_ranges([tensor, *copies])) == []


@clause("comm.broadcast.row-major-copies")
def test_broadcast_copies_are_row_major(target, topology):
    tensor = TensorSpec((2, 3, 2, 2), layout="channels_last", slot=None).build(topology)
    (copy,) = target.comm.broadcast(tensor, topology.take(1))
    assert copy.stride() == (12, 4, 2, 1)


@clause("comm.broadcast.sparse")
@given(call=sparse_broadcast_calls())
def test_sparse_tensors_stay_sparse(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.returns-list")
@given(call=broadcast_calls())
def test_copies_are_returned_in_a_list(target, topology, call):
    assert type(call.run(target, call.inputs(topology))) is list


@clause("comm.broadcast.differentiable")
@given(call=broadcast_calls(grads=(True,)))
def test_gradients_of_the_copies_reach_the_input(target, baselines, topology, call):
    topology.require_copies()
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.refuses-negative-ordinal")
def test_broadcast_refuses_a_negative_ordinal(target, topology):
    call = PublicCall("comm.broadcast", {"tensor": dense(), "devices": [DeviceAt(0), -1]})
    text = "Expected non-negative device index, but got -1"
    refused(call, target, topology, RuntimeError, text)


@clause("comm.broadcast.refuses-both-or-neither")
@pytest.mark.parametrize(
    "arguments", [{}, {"devices": [0], "out": []}, {"devices": [], "out": []}], ids=str
)
def test_both_or_neither_of_devices_and_out_are_refused(target, topology, arguments):
    call = PublicCall("comm.broadcast", {"tensor": dense(), **arguments})
    text = (
        "Exactly one of 'devices' and 'out' must be specified, "
        f"but got devices={arguments.get('devices')} and out={arguments.get('out')}"
    )
    refused(call, target, topology, RuntimeError, text)
