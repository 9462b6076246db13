"""comm.reduce_add_coalesced: sums of many tensors at once, position by position."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.tensors import (
    count_version_bumps,
    dense_sum,
    find_shared,
    order_sensitive_addends,
)
from spec_tests.oracle.tensors import to_numpy as as_array
from spec_tests.strategies.calls import DeviceAt, PublicCall, build
from spec_tests.strategies.comm import BUFFER_SIZES, dense, mixed_rows, reduce_add_coalesced_calls
from spec_tests.strategies.tensors import FLOATS, TensorSpec, counting


def _reduce(*rows, **options):
    return PublicCall("comm.reduce_add_coalesced", {"inputs": list(rows), **options})


@clause("comm.reduce-add-coalesced.sums")
@given(call=reduce_add_coalesced_calls())
def test_reduce_add_coalesced_returns_the_sums_on_the_destination(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("comm.reduce-add-coalesced.mixed-sparse")
@given(rows=mixed_rows(), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_sum_of_sparse_and_dense_tensors_is_dense(target, topology, rows, buffer_size):
    # PyTorch 0.2: a dense and a sparse gradient were summed in the layout of the first (#3211).
    inputs = build(rows, topology)
    sums = target.comm.reduce_add_coalesced(inputs, inputs[0][0].device, buffer_size)
    layouts = [{tensor.layout for tensor in position} for position in zip(*inputs, strict=True)]
    expected = [kinds.pop() if len(kinds) == 1 else torch.strided for kinds in layouts]
    assert [total.layout for total in sums] == expected


@clause("comm.reduce-add-coalesced.input-order")
@given(rows=mixed_rows(), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_sums_of_mixed_layouts_keep_the_input_order(target, topology, rows, buffer_size):
    inputs = build(rows, topology)
    sums = target.comm.reduce_add_coalesced(inputs, inputs[0][0].device, buffer_size)
    for total, addends in zip(sums, zip(*inputs, strict=True), strict=True):
        np.testing.assert_array_equal(as_array(total), dense_sum(addends))


@clause("comm.reduce-add-coalesced.order")
@pytest.mark.parametrize("buffer_size", BUFFER_SIZES, ids="{}B".format)
@pytest.mark.parametrize("slots", [(1, 0, 1, 2), (0, 0, 0, 0)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_round_like_reduce_add(target, topology, buffer_size, slots, dtype):
    pairs = zip(order_sensitive_addends(4, dtype), topology.take(slots), strict=True)
    rows = [[tensor.to(device), tensor[:5].to(device)] for tensor, device in pairs]
    sums = target.comm.reduce_add_coalesced(rows, rows[0][0].device, buffer_size)
    separate = [
        target.comm.reduce_add(addends, addends[0].device) for addends in zip(*rows, strict=True)
    ]
    assert [total.tolist() for total in sums] == [total.tolist() for total in separate]


@clause("comm.reduce-add-coalesced.detached")
def test_sums_require_no_grad(target, topology):
    rows = [
        [torch.ones((2, 2), device=device, requires_grad=True) for _ in range(2)]
        for device in topology.take(2)
    ]
    sums = target.comm.reduce_add_coalesced(rows, topology.device(0))
    assert [(total.requires_grad, total.is_leaf) for total in sums] == [(False, True)] * 2


@clause("comm.reduce-add-coalesced.own-versions")
@given(call=reduce_add_coalesced_calls())
@example(call=_reduce([dense(), dense()], [dense(slot=1), dense(slot=1)]))
def test_each_sum_has_its_own_version_counter(target, topology, call):
    sums = call.run(target, call.inputs(topology))
    assert count_version_bumps(sums).tolist() == np.tri(len(sums)).tolist()


@clause("comm.reduce-add-coalesced.no-overlap")
@given(call=reduce_add_coalesced_calls())
@example(
    call=_reduce(
        *[[dense(slot=slot, dtype=torch.float64)] * 2 for slot in (0, 1)], destination=DeviceAt(0)
    )
)
def test_sums_share_no_memory_with_each_other_or_the_inputs(target, topology, call):
    inputs = call.inputs(topology)
    assert find_shared(call.run(target, inputs), inputs["inputs"]) == []


@clause("comm.reduce-add-coalesced.row-major")
def test_dense_sums_are_row_major(target, topology):
    specs = [[TensorSpec((2, 3, 2, 2), layout="channels_last", slot=slot)] for slot in (0, 1)]
    (total,) = target.comm.reduce_add_coalesced(build(specs, topology), topology.device(0))
    assert total.stride() == (12, 4, 2, 1)


@clause("comm.reduce-add-coalesced.inputs-kept")
@given(call=reduce_add_coalesced_calls())
def test_reduce_add_coalesced_does_not_write_to_the_inputs(target, topology, call):
    inputs = call.inputs(topology)
    before = snapshot(inputs, inputs)
    call.run(target, inputs)
    checks.same(snapshot(inputs, inputs), before, call)


@clause("comm.reduce-add-coalesced.single-list")
@pytest.mark.parametrize("buffer_size", BUFFER_SIZES, ids="{}B".format)
def test_sums_of_a_single_list_equal_its_tensors(target, topology, buffer_size):
    row = [counting((2, size), torch.float32, topology.device(0)) for size in (1, 2, 3)]
    sums = target.comm.reduce_add_coalesced([row], topology.device(0), buffer_size)
    assert [total.tolist() for total in sums] == [tensor.tolist() for tensor in row]


@clause("comm.reduce-add-coalesced.empty-tensors")
def test_sums_of_empty_tensors_keep_their_shape(target, baselines, topology):
    rows = [[dense((0, 4), slot), dense((2, 3), slot), dense((3, 0, 2), slot)] for slot in (0, 1)]
    checks.agree(_reduce(*rows, destination=DeviceAt(0)), target, baselines, topology)


@clause("comm.reduce-add-coalesced.no-tensors")
@pytest.mark.parametrize("rows", [[], [[], []]], ids=str)
def test_sum_of_an_empty_list_is_an_empty_tuple(target, topology, rows):
    assert target.comm.reduce_add_coalesced(rows) == ()


@clause("comm.reduce-add-coalesced.returns-tuple")
def test_sums_are_returned_in_a_tuple(target, topology):
    rows = [[counting((2, 2), torch.float32, device)] for device in topology.take(2)]
    assert type(target.comm.reduce_add_coalesced(rows, topology.device(0))) is tuple


@clause("comm.reduce-add-coalesced.refuses-ragged-lists")
@pytest.mark.parametrize("lengths", [(1, 2), (2, 1)], ids=str)
def test_lists_of_different_lengths_are_refused(target, topology, lengths):
    rows = [[dense()] * length for length in lengths]
    refused(_reduce(*rows, destination=DeviceAt(0)), target, topology, ValueError, [])


@clause("comm.reduce-add-coalesced.refuses-ragged-lists")
def test_lists_with_different_numbers_of_buckets_are_refused(target, topology):
    first = [TensorSpec((2,)), TensorSpec((0,))]
    second = [TensorSpec((2,)), TensorSpec((0,), torch.float64)]
    call = _reduce(first, second, destination=DeviceAt(0))
    refused(call, target, topology, ValueError, [])


@clause("comm.reduce-add-coalesced.refuses-like-reduce-add")
def test_list_of_cpu_tensors_is_refused(target, topology):
    text = "reduce_add expects all inputs to be on GPUs, but input 1 is on CPU"
    call = _reduce([dense()] * 2, [dense(slot=None)] * 2, destination=DeviceAt(0))
    refused(call, target, topology, AssertionError, text)


@clause("comm.reduce-add-coalesced.refuses-like-reduce-add")
@pytest.mark.parametrize(
    "options", [{}, {"buffer_size": 0}], ids=["default-buffer", "empty-buffer"]
)
def test_destination_that_holds_no_list_is_refused(target, topology, options):
    topology.require(distinct=2)
    text = "reduce_add expects destination to be on the same GPU with one of the tensors"
    call = _reduce([dense()] * 2, [dense()] * 2, destination=DeviceAt(1), **options)
    refused(call, target, topology, RuntimeError, text)
