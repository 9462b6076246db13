"""comm.reduce_add_coalesced: sums of many tensors at once, position by position."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.refusals import refusals, refused
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.tensors import (
    count_version_bumps,
    dense_sum,
    find_shared,
    order_sensitive_addends,
)
from spec_tests.oracle.tensors import to_numpy as as_array
from spec_tests.strategies.calls import DeviceAt, KeywordCall, build
from spec_tests.strategies.comm import BUFFER_SIZES, dense, mixed_rows, reduce_add_coalesced_calls
from spec_tests.strategies.tensors import FLOATS, counting


def _reduce(*rows, **options):
    return KeywordCall("comm.reduce_add_coalesced", {"inputs": list(rows), **options})


@clause("comm.reduce-add-coalesced.sums")
@clause("comm.reduce-add-coalesced.returns-tuple")
@clause("comm.reduce-add-coalesced.inputs-kept")
@given(call=reduce_add_coalesced_calls())
def test_reduce_add_coalesced_returns_the_sums_on_the_destination(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("comm.reduce-add-coalesced.mixed-sparse")
@clause("comm.reduce-add-coalesced.input-order")
@given(rows=mixed_rows(), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_sums_of_sparse_and_dense_tensors_are_dense_and_in_order(
    target, topology, rows, buffer_size
):
    # PyTorch 0.2: a dense and a sparse gradient were summed in the layout of the first (#3211).
    inputs = build(rows, topology)
    sums = target.comm.reduce_add_coalesced(inputs, inputs[0][0].device, buffer_size)
    layouts = [{tensor.layout for tensor in position} for position in zip(*inputs, strict=True)]
    expected = [kinds.pop() if len(kinds) == 1 else torch.strided for kinds in layouts]
    found = [as_array(s).tolist() for s in sums]
    totals = [dense_sum(addends).tolist() for addends in zip(*inputs, strict=True)]
    checks.same(sorted(found, key=str), sorted(totals, key=str))
    layouts = [each.layout for each in sums]
    checks.same({"layouts": layouts, "order": found}, {"layouts": expected, "order": totals})


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
    checks.same([total.tolist() for total in sums], [total.tolist() for total in separate])


@clause("comm.reduce-add-coalesced.own-versions")
@given(call=reduce_add_coalesced_calls())
@example(call=_reduce([dense(), dense()], [dense(slot=1), dense(slot=1)]))
def test_each_sum_has_its_own_version_counter(target, topology, call):
    sums = call.run(target, call.inputs(topology))
    found = count_version_bumps(sums).tolist()
    checks.same(found, np.tri(len(sums)).tolist(), place="increased versions")


@clause("comm.reduce-add-coalesced.no-overlap")
@given(call=reduce_add_coalesced_calls())
@example(
    call=_reduce(
        *[[dense(slot=slot, dtype=torch.float64)] * 2 for slot in (0, 1)], destination=DeviceAt(0)
    )
)
def test_sums_share_no_memory_with_each_other_or_the_inputs(target, topology, call):
    inputs = call.inputs(topology)
    found = find_shared(call.run(target, inputs), inputs["inputs"])
    checks.same(found, [], place="aliasing")


@clause("comm.reduce-add-coalesced.single-list")
@pytest.mark.parametrize("buffer_size", BUFFER_SIZES, ids="{}B".format)
def test_sums_of_a_single_list_equal_its_tensors(target, topology, buffer_size):
    row = [counting((2, size), torch.float32, topology.device(0)) for size in (1, 2, 3)]
    sums = target.comm.reduce_add_coalesced([row], topology.device(0), buffer_size)
    checks.same([total.tolist() for total in sums], [tensor.tolist() for tensor in row])


def _reduce_to_first(*rows, **options):
    return _reduce(*rows, destination=DeviceAt(0), **options)


SHAPES = ((0, 4), (2, 3), (3, 0, 2))
#: For each clause: calls with results like those of the baselines.
AGREED = {
    "comm.reduce-add-coalesced.detached": [
        _reduce_to_first(*[[dense(slot=slot, requires_grad=True)] * 2 for slot in (0, 1)])
    ],
    "comm.reduce-add-coalesced.row-major": [
        _reduce_to_first(*[[dense((2, 3, 2, 2), slot, layout="channels_last")] for slot in (0, 1)])
    ],
    "comm.reduce-add-coalesced.empty-tensors": [
        _reduce_to_first(*[[dense(shape, slot) for shape in SHAPES] for slot in (0, 1)])
    ],
    "comm.reduce-add-coalesced.no-tensors": [_reduce(), _reduce([], [])],
}


@cases("call", AGREED)
def test_reduce_add_coalesced_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


PAIR, EMPTY, EMPTY_DOUBLE = dense((2,)), dense((0,)), dense((0,), dtype=torch.float64)
#: For each clause: calls, each with the values in its error.
REFUSED = {
    "comm.reduce-add-coalesced.refuses-ragged-lists": [
        (_reduce_to_first([dense()], [dense()] * 2), {}),
        (_reduce_to_first([dense()] * 2, [dense()]), {}),
        # The lists have different numbers of buckets.
        (_reduce_to_first([PAIR, EMPTY], [PAIR, EMPTY_DOUBLE]), {}),
    ],
    "comm.reduce-add-coalesced.refuses-like-reduce-add": [
        (_reduce_to_first([dense()] * 2, [dense(slot=None)] * 2), {"number": 1, "index": 1}),
        # Addends are flattened before they are compared, so the text has numbers of elements.
        (
            _reduce_to_first([dense()], [dense((4, 1))]),
            {"number": 2, "index": 1, "size": 4, "expected": 12},
        ),
    ],
}


@refusals(REFUSED)
def test_reduce_add_coalesced_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("comm.reduce-add-coalesced.refuses-like-reduce-add")
@pytest.mark.parametrize("options", [{}, {"buffer_size": 0}], ids=str)
def test_destination_that_holds_no_list_is_refused(target, topology, options):
    topology.require(distinct=2)
    call = _reduce([dense()] * 2, [dense()] * 2, destination=DeviceAt(1), **options)
    refused(call, target, topology, error_of("comm.reduce-add-coalesced.refuses-like-reduce-add"))
