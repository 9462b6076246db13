"""functions.ReduceAddCoalesced: sums of several tensors, with gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.gradients import gradient_snapshot
from spec_tests.oracle.tensors import dense_sum
from spec_tests.oracle.tensors import to_numpy as as_array
from spec_tests.strategies.calls import ApplyCall, DeviceAt, build
from spec_tests.strategies.comm import dense, mixed_rows
from spec_tests.strategies.functions import reduce_applies

DEVICE = DeviceAt(0)


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
    assert [as_array(total).tolist() for total in sums] == expected


@clause("functions.reduce-add-coalesced.gradients-copied")
@pytest.mark.parametrize("count", [1, 2], ids="tensors={}".format)
def test_every_addend_gets_the_gradient_of_its_sum(target, topology, count):
    specs = [dense((2, index + 1), slot) for slot in range(3) for index in range(count)]
    addends = [tensor.requires_grad_() for tensor in build(specs, topology)]
    function = target.functions.ReduceAddCoalesced
    sums = function.apply(topology.device(0), count, *addends)
    found = torch.autograd.grad(sums, addends, [cotangent(total) for total in sums])
    checks.same(
        gradient_snapshot(found),
        gradient_snapshot([cotangent(addend.detach()) for addend in addends]),
    )


@clause("functions.reduce-add-coalesced.refuses-ragged-rows")
@given(extra=st.integers(1, 2))
def test_incomplete_row_of_tensors_is_refused(target, topology, extra):
    call = _reduce(*[dense()] * (3 + extra), count=3)
    text = "zip() argument 2 is shorter than argument 1"
    refused(call, target, topology, ValueError, text)


@clause("functions.reduce-add-coalesced.refuses-like-comm")
def test_destination_that_holds_no_addend_is_refused(target, topology):
    topology.require(distinct=2)
    text = "reduce_add expects destination to be on the same GPU with one of the tensors"
    refused(
        _reduce(dense(), dense(), destination=DeviceAt(1)), target, topology, RuntimeError, text
    )


@clause("functions.reduce-add-coalesced.refuses-like-comm")
def test_addends_with_different_sizes_are_refused(target, topology):
    # Addends are flattened before they are compared, so the text contains numbers of elements.
    text = "input 1 has invalid size: got 4, but expected 12"
    refused(_reduce(dense(), dense((4, 1))), target, topology, ValueError, text)
