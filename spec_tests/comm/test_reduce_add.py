"""comm.reduce_add: the sum of tensors from several devices."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.refusals import refusals, refused
from spec_tests.machine.clauses import clause, error_of
from spec_tests.oracle.tensors import dense_sum, order_sensitive_addends
from spec_tests.oracle.tensors import to_numpy as as_array
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense, reduce_add_calls
from spec_tests.strategies.tensors import FLOATS, TensorSpec, counting, sparse_specs


def _reduce(*inputs, **options):
    return KeywordCall("comm.reduce_add", {"inputs": list(inputs), **options})


@clause("comm.reduce-add.sum")
@clause("comm.reduce-add.single-input")
@clause("comm.reduce-add.inputs-kept")
@given(call=reduce_add_calls())
@example(call=_reduce(dense(), destination=DeviceAt(0)))
@example(call=_reduce(dense(), dense(layout="transposed"), destination=DeviceAt(0)))
def test_reduce_add_returns_the_sum_on_the_destination(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.reduce-add.sum")
@pytest.mark.parametrize("count", [2, 3, 4], ids="devices={}".format)
def test_sum_of_large_tensors_is_not_zero(target, topology, count):
    # PyTorch 0.2: on some machines the sum was zero (#2573).
    ones = [torch.ones(2**18, device=device) for device in topology.take(count)]
    total = target.comm.reduce_add(ones, topology.device(0))
    checks.same(total.unique().tolist(), [count])
    checks.same([tensor.unique().tolist() for tensor in ones], [[1.0]] * count)


# Before the test of dtypes, whose sums also depend on the order: -x then names this clause.
@clause("comm.reduce-add.order")
@pytest.mark.parametrize("root", range(3), ids="root={}".format)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sum_starts_with_the_last_input_on_the_destination(
    target, baselines, topology, root, dtype
):
    topology.require_copies()
    devices = topology.take([0, 1, 2, 0])
    inputs = [
        tensor.to(device)
        for tensor, device in zip(order_sensitive_addends(4, dtype), devices, strict=True)
    ]
    libraries = (target, *baselines)
    found, *expected = [
        library.comm.reduce_add(inputs, devices[root]).tolist() for library in libraries
    ]
    checks.same([found] * len(baselines), expected)


@clause("comm.reduce-add.mixed-dtypes")
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.int32, torch.float32),
        (torch.float32, torch.int32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float16),
        (torch.int32, torch.int32, torch.float32),
    ],
    ids=lambda dtypes: "-".join(str(dtype).removeprefix("torch.") for dtype in dtypes),
)
def test_different_dtypes_are_promoted_or_refused(target, baselines, topology, dtypes):
    topology.require_copies()
    inputs = [TensorSpec((2, 3), dtype, slot=slot) for slot, dtype in enumerate(dtypes)]
    checks.agree(_reduce(*inputs, destination=DeviceAt(0)), target, baselines, topology)


@clause("comm.reduce-add.current-device")
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
def test_reduce_add_destination_defaults_to_the_current_device(target, topology, slot):
    topology.require(distinct=2)
    inputs = [counting((3, 2), torch.float32, device) for device in topology.take(2)]
    with torch.accelerator.device_index(topology.device(slot).index):
        total = target.comm.reduce_add(inputs)
    checks.same(total.device, topology.device(slot), place="device")


@clause("comm.reduce-add.sparse")
@given(data=st.data())
def test_sum_of_sparse_inputs_is_sparse(target, topology, data):
    specs = [data.draw(sparse_specs(shape=(3, 2), slots=[slot])) for slot in range(3)]
    inputs = [spec.build(topology).to(torch.float64) for spec in specs]
    total = target.comm.reduce_add(inputs, topology.device(0))
    assert total.layout is torch.sparse_coo
    np.testing.assert_array_equal(as_array(total), dense_sum(inputs))


@clause("comm.reduce-add.differentiable")
@given(call=reduce_add_calls(dtypes=(torch.float32, torch.float64), grads=(True,)))
def test_gradients_of_the_sum_reach_every_input(target, baselines, topology, call):
    topology.require_copies()
    checks.agree(call, target, baselines, topology)


#: For each clause: calls, each with the values in its error.
REFUSED = {
    "comm.reduce-add.refuses-cpu": [
        (_reduce(*inputs, destination=DeviceAt(0)), {"index": index})
        for index, inputs in enumerate([(dense(slot=None), dense()), (dense(), dense(slot=None))])
    ],
    "comm.reduce-add.refuses-other-shapes": [
        (
            _reduce(dense(), dense(shape), destination=DeviceAt(0)),
            {"index": 1, "size": printed, "expected": "4x3"},
        )
        for shape, printed in (((4, 1), "4x1"), ((3,), "3"), ((1, 4, 3), "1x4x3"))
    ],
}


@refusals(REFUSED)
def test_reduce_add_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("comm.reduce-add.refuses-other-destination")
@pytest.mark.parametrize("count", [1, 2], ids="inputs={}".format)
def test_destination_that_holds_no_input_is_refused(target, topology, count):
    topology.require(distinct=2)
    call = _reduce(*[dense()] * count, destination=DeviceAt(1))
    refused(call, target, topology, error_of("comm.reduce-add.refuses-other-destination"))
