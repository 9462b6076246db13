"""functions.Gather: concatenation of chunks into one tensor, with gradients."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import check_error, refusals, refused
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.functions import SCALARS_WARNING
from spec_tests.strategies.calls import ApplyCall, DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.functions import gather_applies, scalar_gathers
from spec_tests.strategies.refused_calls import OTHER_DIMENSIONS, OTHER_SHAPES
from spec_tests.strategies.tensors import COMPLEX, FLOATS

DEVICE = DeviceAt(0)


def _gather(*tensors, destination=DEVICE, dim=0):
    return ApplyCall("Gather", (destination, dim), tensors)


#: For each clause: calls with results like those of the baselines.
AGREED = {
    "functions.gather.keeps-channels-last": [
        _gather(
            *[dense(shape, slot, layout="channels_last", requires_grad=True) for slot in (0, 1)],
            dim=dim,
        )
        for shape in ((2, 3, 2, 2), (2, 3, 2, 2, 2))
        for dim in (0, 1, -1)
    ],
    "functions.gather.minus-one-is-the-cpu": [_gather(dense(), dense(), destination=-1)],
    "functions.gather.scalar-gradients": [
        _gather(*[dense((), slot, requires_grad=True) for slot in range(count)])
        for count in (1, 3)
    ],
}
#: For each clause: calls, each with the values in its error.
REFUSED = {
    "functions.gather.refuses-scalars-elsewhere": [
        (_gather(dense(()), dense(()), dim=dim), {"dim": dim}) for dim in (1, -1)
    ],
    "functions.gather.refuses-scalars-among-vectors": [
        (_gather(*map(dense, shapes)), {"dim": 0}) for shapes in (((), (1,)), ((1,), ()))
    ],
    "functions.gather.refuses-other-shapes": [
        (_gather(*chunks, dim=dim), values | {"number": number})
        for number, found in enumerate([OTHER_SHAPES, OTHER_DIMENSIONS])
        for chunks, dim, values in found
    ],
    "functions.gather.refuses-cpu-among-others": [
        (_gather(*map(dense, [(4, 3)] * 2, slots)), {}) for slots in ((None, 0), (0, None))
    ],
}
META_CHUNKS = [torch.ones(2, device="meta")] * 2
META_CALLS = [
    _gather(*META_CHUNKS),
    KeywordCall("scatter_gather.gather", {"outputs": META_CHUNKS, "target_device": DEVICE}),
]


@clause("functions.gather.joined")
@given(call=gather_applies())
def test_gather_function_concatenates_chunks_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.gather.gradient-split")
@given(call=gather_applies(dtype_groups=(FLOATS, COMPLEX), grads=(True,)))
def test_chunk_gets_its_slice_of_the_gradient(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.gather.scalars-become-a-vector")
@given(call=scalar_gathers())
def test_scalars_become_a_vector_with_a_warning(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)
    with pytest.warns(UserWarning, match=SCALARS_WARNING):
        joined = call.run(target, call.inputs(topology))
    checks.same(tuple(joined.shape), (len(call.tensors),))


@clause("functions.gather.always-new")
@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "requires-grad"])
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
def test_gather_function_shares_no_memory_with_chunks_or_the_next_result(
    target, topology, count, requires_grad
):
    call = _gather(*[dense((2, 2), requires_grad=requires_grad)] * count)
    inputs = call.inputs(topology)
    with torch.set_grad_enabled(requires_grad):  # a target may keep results without a gradient
        result = call.run(target, inputs).detach().fill_(-1)
        call.run(target, inputs)
    checks.same(result.unique().tolist(), [-1], place="aliasing")
    chunks = [chunk.tolist() for chunk in inputs["tensors"]]
    checks.same(chunks, [[[0, 1], [2, 3]]] * count, place="aliasing")


@clause("functions.gather.current-device")
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize(
    "spelling", [lambda kind: None, str, torch.device], ids=["None", "string", "device"]
)
def test_target_without_index_is_the_current_device(target, topology, slot, spelling):
    topology.require(distinct=2)
    call = _gather(dense(), dense(slot=1), destination=spelling(topology.accelerator))
    with torch.accelerator.device_index(topology.device(slot).index):
        joined = call.run(target, call.inputs(topology))
    checks.same(joined.device, topology.device(slot), call, place="device")


class WarningGather(torch.autograd.Function):
    """A Function whose warning names the file and line of the caller of ``forward``."""

    @staticmethod
    def forward(ctx, target, dim, *tensors):
        warnings.warn(SCALARS_WARNING, stacklevel=2)
        return tensors[0].clone()


#: Used in place of ``target``: a library whose Gather is `WarningGather`.
WARNING_LIBRARY = SimpleNamespace(functions=SimpleNamespace(Gather=WarningGather))


def _place_of_warning(library, topology):
    call = _gather(dense(()))
    with pytest.warns(UserWarning, match=SCALARS_WARNING) as caught:
        call.run(library, call.inputs(topology))
    return caught[0].filename, caught[0].lineno


@clause("functions.gather.warning-names-autograd")
def test_warning_for_scalars_names_the_caller_of_forward(target, topology):
    # Users' warning filters may match this file and line.
    assert _place_of_warning(target, topology) == _place_of_warning(WARNING_LIBRARY, topology)


@cases("call", AGREED)
def test_gather_function_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@refusals(REFUSED)
def test_gather_function_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


@clause("functions.gather.refuses-other-devices")
@pytest.mark.parametrize("call", META_CALLS, ids=lambda call: call.function)
def test_meta_tensors_are_refused(target, topology, call):
    with pytest.raises(RuntimeError) as caught:
        call.run(target, call.inputs(topology))
    error = error_of("functions.gather.refuses-other-devices", index=0, device="meta")
    check_error(caught.value, error, topology, call)
