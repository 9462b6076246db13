"""comm.broadcast_coalesced: copies of many tensors in few transfers."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import refusals, refused
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.tensors import (
    address_ranges,
    count_version_bumps,
    find_overlaps,
    find_shared,
)
from spec_tests.strategies.calls import DeviceAt, DistinctDevices, KeywordCall
from spec_tests.strategies.comm import BUFFER_SIZES, dense
from spec_tests.strategies.comm import broadcast_coalesced_calls as coalesced_calls
from spec_tests.strategies.tensors import counting

DISTINCT_DEVICES = DistinctDevices((0, 1, 2))


def _broadcast(tensors, devices=DISTINCT_DEVICES, **options):
    arguments = {"tensors": tensors, "devices": devices, **options}
    return KeywordCall("comm.broadcast_coalesced", arguments)


def _copies(call, target, topology):
    """Return the lists of copies for all devices except the first."""
    return call.run(target, call.inputs(topology))[1:]


@clause("comm.broadcast-coalesced.copies")
@clause("comm.broadcast-coalesced.first-is-the-input")
@clause("comm.broadcast-coalesced.returns-lists")
@given(call=coalesced_calls())
def test_every_device_gets_copies_of_all_tensors_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.broadcast-coalesced.detached-copies")
@given(call=coalesced_calls(grads=(True,)))
def test_copies_are_leaf_tensors_without_grad(target, topology, call):
    for copy in chain.from_iterable(_copies(call, target, topology)):
        found = {
            "requires_grad": copy.requires_grad,
            "is_leaf": copy.is_leaf,
            "is_view": copy._is_view(),
            "type": type(copy),
        }
        expected = dict.fromkeys(found, False) | {"is_leaf": True, "type": torch.Tensor}
        checks.same(found, expected, call)


@clause("comm.broadcast-coalesced.parameters-become-tensors")
def test_copies_of_parameters_are_plain_tensors(target, topology):
    parameters = [nn.Parameter(torch.ones((2, 3), device=topology.device(0))) for _ in range(2)]
    _, copies = target.comm.broadcast_coalesced(parameters, topology.take(2))
    assert {(type(copy), copy.requires_grad) for copy in copies} == {(torch.Tensor, False)}


@clause("comm.broadcast-coalesced.any-dtype")
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.uint8, torch.bfloat16], ids=str)
def test_buffers_with_rare_dtypes_are_copied(target, topology, dtype):
    # PyTorch 1.5: a bool buffer raised "Unconvertible NCCL type" (#40978).
    topology.require_copies()
    tensors = [torch.ones(3, device=topology.device(0)), torch.tensor([0, 1, 1]).to(dtype)]
    tensors[1] = tensors[1].to(topology.device(0))
    *_, (_, copy) = target.comm.broadcast_coalesced(tensors, topology.take(2))
    checks.same((copy.dtype, copy.tolist()), (dtype, tensors[1].tolist()))


@clause("comm.broadcast-coalesced.own-versions")
@given(call=coalesced_calls(sparse=False))
def test_each_copy_has_its_own_version_counter(target, topology, call):
    # PyTorch 0.4: the copies on one device shared a version counter (#13594).
    copies = [copy for row in _copies(call, target, topology) for copy in row]
    found = count_version_bumps(copies).tolist()
    checks.same(found, np.tri(len(copies)).tolist(), place="increased versions")


@clause("comm.broadcast-coalesced.no-overlap")
@given(call=coalesced_calls(sparse=False))
@example(call=_broadcast([dense(dtype=torch.float64)] * 2))
def test_copies_share_no_memory_with_each_other_or_the_inputs(target, topology, call):
    inputs = call.inputs(topology)
    checks.same(find_shared(call.run(target, inputs)[1:], inputs["tensors"]), [])


@clause("comm.broadcast-coalesced.row-major")
@given(call=coalesced_calls())
@example(call=_broadcast([dense(layout="transposed")]))
def test_dense_coalesced_copies_are_row_major(target, topology, call):
    copies = [copy for row in _copies(call, target, topology) for copy in row]
    dense = [copy for copy in copies if not copy.is_sparse]
    found = [copy.stride() for copy in dense if not copy.is_contiguous()]
    checks.same(found, [], place="strides")


@clause("comm.broadcast-coalesced.buffer-size")
@given(
    call=coalesced_calls(grads=(False,)), limits=st.tuples(*[st.sampled_from(BUFFER_SIZES)] * 2)
)
def test_buffer_size_does_not_change_the_copies(target, topology, call, limits):
    inputs = call.inputs(topology)
    first, second = (call.run(target, {**inputs, "buffer_size": limit}) for limit in limits)
    checks.same(snapshot(first, inputs), snapshot(second, inputs), call)


#: For each clause: calls with results like those of the baselines.
AGREED = {
    "comm.broadcast-coalesced.empty-tensors": [_broadcast([dense(), dense((3, 0, 8)), dense()])],
    "comm.broadcast-coalesced.no-tensors": [_broadcast([])],
}


@cases("call", AGREED)
def test_broadcast_coalesced_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


#: For each clause: calls, each with the values in its error.
REFUSED = {
    "comm.broadcast-coalesced.refuses-buffer-size": [
        (_broadcast([dense()], buffer_size=size), {}) for size in (-1, 1.0, "1", None)
    ],
    "comm.broadcast-coalesced.refuses-negative-ordinal": [
        (_broadcast([dense()], devices=[DeviceAt(0), -1]), {"ordinal": -1})
    ],
}


@refusals(REFUSED)
def test_broadcast_coalesced_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("comm.broadcast-coalesced.refuses-other-devices")
@pytest.mark.parametrize("slots", [(None,), (0, None), (0, 1)], ids=str)
def test_tensor_on_another_device_than_the_first_is_refused(target, topology, slots):
    topology.require(distinct=2)
    call = _broadcast([dense(slot=slot) for slot in slots])
    name = "comm.broadcast-coalesced.refuses-other-devices"
    refused(call, target, topology, error_of(name, ordinal=topology.ordinals[0]))


@clause("divergences.CO-4.repeated-devices-get-copies")
@example(count=1, buffer_size=BUFFER_SIZES[0])
@given(count=st.integers(1, 4), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_broadcast_coalesced_copies_for_repeated_devices(target, topology, count, buffer_size):
    device = topology.device(0)
    tensors = [counting((2, 2), torch.float32, device) for _ in range(count)]
    first, *others = target.comm.broadcast_coalesced(tensors, [device] * 3, buffer_size)
    assert [id(tensor) for tensor in first] == [id(tensor) for tensor in tensors]
    overlaps = find_overlaps(address_ranges([tensors, others]))
    checks.same(
        {"copies that overlap": len(overlaps)}, {"copies that overlap": 0}, "[devices[0]] * 3"
    )


@clause("divergences.CO-4.repeated-devices-get-copies")
def test_broadcast_function_copies_for_a_repeated_device(target, topology):
    tensor = counting((2, 2), torch.float32, topology.device(0)).requires_grad_()
    devices = [topology.device(0)] * 2
    _, copy = target.functions.Broadcast.apply(devices, tensor)
    overlaps = find_overlaps(address_ranges([tensor, copy]))
    checks.same(
        {"copies that overlap": len(overlaps)}, {"copies that overlap": 0}, "[devices[0]] * 2"
    )
