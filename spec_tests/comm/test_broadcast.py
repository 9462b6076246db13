"""comm.broadcast: copies of one tensor on many devices, also in given tensors (``out``)."""

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import refusals, refused
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.tensors import find_shared
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import SPARSE, broadcast_calls, broadcast_out_calls, dense
from spec_tests.strategies.tensors import SparseSpec, counting


@clause("comm.broadcast.copies")
@clause("comm.broadcast.returns-list")
@given(call=broadcast_calls())
def test_every_device_gets_a_copy_of_the_tensor(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.copies-are-independent")
@pytest.mark.parametrize("source", [None, 1], ids=["from-cpu", "from-device"])
def test_two_copies_on_one_device_share_no_memory(target, topology, source):
    topology.require(distinct=2)
    tensor = counting((4, 2), torch.float32, topology.device(source))
    copies = target.comm.broadcast(tensor, [topology.device(0)] * 2)
    checks.same(find_shared(copies, tensor), [])


@clause("comm.broadcast.differentiable")
@given(call=broadcast_calls(grads=(True,)))
def test_gradients_of_the_copies_reach_the_input(target, baselines, topology, call):
    topology.require_copies()
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.out-filled")
@given(call=broadcast_out_calls())
def test_broadcast_fills_and_returns_the_outputs(target, baselines, topology, call):
    topology.require_copies()
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.out-differentiable")
@given(call=broadcast_out_calls(grads=(True,)))
def test_gradients_of_broadcast_outputs_reach_the_input(target, baselines, topology, call):
    topology.require_copies()
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast.out-filled")
@clause("comm.broadcast.out-versions")
def test_outputs_are_returned_in_a_new_list_with_versions_increased_by_one(target, topology):
    topology.require_copies()
    tensor = counting((4, 3), torch.float32, topology.device(0))
    outs = [torch.empty((4, 3), device=device) for device in topology.take(2)]
    before = [out._version for out in outs]
    results = target.comm.broadcast(tensor, out=outs)
    assert results is not outs
    checks.same([id(result) for result in results], [id(out) for out in outs])
    found, expected = [out._version for out in outs], [version + 1 for version in before]
    checks.same(found, expected, place="versions")


def _broadcast(**arguments):
    return KeywordCall("comm.broadcast", {"tensor": dense(), **arguments})


#: For each clause: calls with results like those of the baselines.
AGREED = {
    "comm.broadcast.own-device-is-the-input": [_broadcast(devices=[DeviceAt(0)] * 2)],
    "comm.broadcast.row-major-copies": [
        _broadcast(tensor=dense((2, 3, 2, 2), None, layout="channels_last"), devices=[DeviceAt(0)])
    ],
    "comm.broadcast.sparse": [
        _broadcast(tensor=SparseSpec(rows=(0, 0, 1), coalesced=coalesced), devices=devices)
        for coalesced in (False, True)
        for devices in ([DeviceAt(0)], [DeviceAt(1), DeviceAt(2)])
    ],
    "comm.broadcast.out-sparse": [
        _broadcast(tensor=SparseSpec(rows=(0, 0, 1), coalesced=coalesced), out=[SPARSE])
        for coalesced in (False, True)
    ],
}


@cases("call", AGREED)
def test_broadcast_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


#: For each clause: calls, each with the values in its error.
REFUSED = {
    "comm.broadcast.refuses-negative-ordinal": [
        (_broadcast(devices=[DeviceAt(0), -1]), {"ordinal": -1})
    ],
    "comm.broadcast.refuses-both-or-neither": [
        (_broadcast(), {"devices": None, "out": None}),
        (_broadcast(devices=[0], out=[]), {"devices": [0], "out": []}),
        (_broadcast(devices=[], out=[]), {"devices": [], "out": []}),
    ],
    "comm.broadcast.out-refuses-cpu": [
        (_broadcast(out=[dense(slot=None), dense()]), {"index": 0}),
        (_broadcast(out=[dense(), dense(slot=None)]), {"index": 1}),
    ],
    "comm.broadcast.out-refuses-other-shapes": [
        (
            _broadcast(out=[dense(shape), dense()][:: 1 - 2 * index]),
            {"expected": [4, 3], "index": index, "shape": [*shape]},
        )
        for index in (0, 1)
        for shape in ((1, 4, 3), (4, 1), (3,))
    ],
}


@refusals(REFUSED)
def test_broadcast_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("comm.broadcast.out-refuses-leaves")
def test_broadcast_refuses_a_leaf_output_that_requires_grad(target, topology):
    topology.require_copies()
    call = _broadcast(tensor=dense(requires_grad=True), out=[dense(requires_grad=True)])
    refused(call, target, topology, error_of("comm.broadcast.out-refuses-leaves"))
