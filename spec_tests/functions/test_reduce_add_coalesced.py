"""functions.ReduceAddCoalesced: sums of several tensors, with gradients."""

import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import refusals, refused
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.tensors import dense_sum
from spec_tests.oracle.tensors import to_numpy as as_array
from spec_tests.strategies.calls import ApplyCall, DeviceAt, build
from spec_tests.strategies.comm import dense, mixed_rows
from spec_tests.strategies.functions import reduce_applies

DEVICE, SLOTS = DeviceAt(0), (0, 1, 2)


def _reduce(*tensors, destination=DEVICE, count=1):
    return ApplyCall("ReduceAddCoalesced", (destination, count), tensors)


@clause("functions.reduce-add-coalesced.sums")
@given(call=reduce_applies())
def test_reduce_add_coalesced_function_returns_the_sums_on_the_destination(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("functions.reduce-add-coalesced.sparse")
@given(rows=mixed_rows())
def test_sums_of_mixed_layouts_are_in_input_order(target, topology, rows):
    inputs = build(rows, topology)
    flat = [tensor for row in inputs for tensor in row]
    function = target.functions.ReduceAddCoalesced
    sums = function.apply(inputs[0][0].device, len(inputs[0]), *flat)
    expected = [dense_sum(addends).tolist() for addends in zip(*inputs, strict=True)]
    checks.same([as_array(total).tolist() for total in sums], expected)


#: For each clause: calls with results like those of the baselines.
AGREED = {
    "functions.reduce-add-coalesced.gradients-copied": [
        _reduce(
            *[dense((2, n), slot, requires_grad=True) for slot in SLOTS for n in sizes],
            count=len(sizes),
        )
        for sizes in ((1,), (1, 2))
    ]
}


@cases("call", AGREED)
def test_reduce_add_coalesced_function_agrees_with_the_baselines(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


#: For each clause: calls, each with the values in its error.
REFUSED = {
    "functions.reduce-add-coalesced.refuses-ragged-rows": [
        (_reduce(*[dense()] * (3 + extra), count=3), {}) for extra in (1, 2)
    ],
    "functions.reduce-add-coalesced.refuses-like-comm": [
        (
            _reduce(dense(), dense((4, 1))),
            {"number": 1, "index": 1, "size": 4, "expected": 12},
        ),
    ],
}


@refusals(REFUSED)
def test_reduce_add_coalesced_function_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("functions.reduce-add-coalesced.refuses-like-comm")
def test_destination_that_holds_no_addend_is_refused(target, topology):
    topology.require(distinct=2)
    call = _reduce(dense(), dense(), destination=DeviceAt(1))
    refused(call, target, topology, error_of("functions.reduce-add-coalesced.refuses-like-comm"))


@clause("divergences.FN-5.sums-anywhere-have-gradients")
def test_a_sum_on_another_device_than_the_first_has_gradients(target, topology):
    topology.require(distinct=2)
    addends = build([dense(slot=slot, requires_grad=True) for slot in (0, 1)], topology)
    (total,) = target.functions.ReduceAddCoalesced.apply(topology.device(1), 1, *addends)
    first, second = torch.autograd.grad(total, addends, total)
    assert [first.device, second.device] == topology.take(2)
    checks.same(first.cpu(), second.cpu(), place="gradient")
    checks.same(first, 2 * dense().build(topology), place="gradient")
