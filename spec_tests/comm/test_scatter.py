"""comm.scatter: chunks of one tensor on several devices, also in given tensors (``out``)."""

import pytest
import torch
from hypothesis import example, given

from spec_tests import checks
from spec_tests.checks.refusals import check_error, refusals, refused
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import SPARSE, dense, scatter_calls, scatter_out_calls
from spec_tests.strategies.refused_calls import RANGE, REFUSED_SCATTERS, scatter_to_own_device
from spec_tests.strategies.tensors import counting

THREE = [DeviceAt(0), DeviceAt(1), DeviceAt(2)]


def _scatter(tensor=None, **options):
    tensor = dense((4, 2)) if tensor is None else tensor
    return KeywordCall("comm.scatter", {"tensor": tensor, **options})


def _scatter_to_two(**options):
    return _scatter(devices=[DeviceAt(0), DeviceAt(0)], **options)


def _scatter_to_out(*out, **options):
    return _scatter(out=list(out), **options)


# Before the next test, which also fails for uneven chunks: -x then names this clause.
@clause("comm.scatter.even-chunks")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
def test_extents_of_even_chunks_are_rounded_up(target, topology, count):
    def extents(rows):
        tensor = counting((rows, 2), torch.float32, topology.device(0))
        return [len(chunk) for chunk in target.comm.scatter(tensor, topology.take(count))]

    found = {f"{rows} rows": extents(rows) for rows in range(1, 26)}
    checks.same(found, {f"{rows} rows": even_chunks(rows, count) for rows in range(1, 26)})


@clause("comm.scatter.slices")
@clause("comm.scatter.returns-tuple")
@given(call=scatter_calls())
@example(call=_scatter(dense((5, 2)), devices=THREE[:2]))
def test_comm_scatter_returns_consecutive_slices(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.empty-dimension")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_every_device_gets_an_empty_chunk_of_an_empty_dimension(target, topology, count, dim):
    tensor = torch.empty((0, 0), device=topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(count), dim=dim)
    checks.same(
        [(tuple(chunk.shape), chunk.device) for chunk in chunks],
        [((0, 0), device) for device in topology.take(count)],
    )


@clause("comm.scatter.differentiable")
@given(call=scatter_calls(grads=(True,)))
def test_gradients_of_the_chunks_reach_the_input(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.own-device-views")
def test_chunk_on_the_input_device_shares_memory_and_version(target, topology):
    call = scatter_to_own_device()
    inputs = call.inputs(topology)
    first, second = call.run(target, inputs)
    checks.shares_memory(second, inputs["tensor"])
    second.fill_(-1)
    checks.same(inputs["tensor"][2:].tolist(), [[-1, -1]] * 2, place="aliasing")
    versions = {each._version for each in (first, second, inputs["tensor"])}
    checks.same((len(versions), 0 in versions), (1, False), place="aliasing")


@clause("comm.scatter.views-refuse-in-place")
def test_view_of_an_input_that_requires_grad_refuses_in_place_writes(target, topology):
    call = scatter_to_own_device(dense((4, 3), requires_grad=True))
    inputs = call.inputs(topology)
    chunk, _ = call.run(target, inputs)
    checks.shares_memory(chunk, inputs["tensor"])
    with pytest.raises(RuntimeError) as caught:
        chunk.zero_()
    check_error(caught.value, error_of("comm.scatter.views-refuse-in-place"), topology)


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("chunk_sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_scatter_refuses_sparse_tensors(target, topology, chunk_sizes):
    call = _scatter_to_two(tensor=SPARSE, chunk_sizes=chunk_sizes)
    inputs, expected = call.inputs(topology), call.inputs(topology)
    with pytest.raises(RuntimeError):  # or a subclass, which depends on the devices
        call.run(target, inputs)
    checks.same(snapshot(inputs, inputs), snapshot(expected, expected), call, place="input")


@clause("comm.scatter.out-filled")
@given(call=scatter_out_calls())
def test_scatter_fills_and_returns_the_outputs_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.out-differentiable")
@given(call=scatter_out_calls(grads=(True,)))
def test_gradients_of_scatter_outputs_reach_the_input(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.out-versions")
def test_scatter_increases_each_output_version_by_one(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = [torch.empty((2, 2), device=device) for device in topology.take(2)]
    before = [out._version for out in outs]
    for chunk, out in zip(target.comm.scatter(tensor, out=outs), outs, strict=True):
        checks.shares_memory(chunk, out)
    expected = [version + 1 for version in before]
    checks.same([out._version for out in outs], expected, place="versions")


@clause("comm.scatter.out-copies-onto-itself")
def test_scatter_writes_to_an_output_that_is_a_view_of_the_input(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = list(tensor.split(2))
    version = tensor._version
    target.comm.scatter(tensor, out=outs)
    checks.same(tensor.tolist(), [[0, 1], [2, 3], [4, 5], [6, 7]])
    checks.same(tensor._version, version + 2)


CHANNELS_LAST = dense((4, 4, 2, 3), None, layout="channels_last")
#: For each clause: calls with results like those of the baselines.
AGREED = {
    "comm.scatter.surplus-devices": [_scatter(dense((2, 3)), devices=[*THREE[:2], 99])],
    "comm.scatter.zero-sizes": [
        _scatter(devices=THREE[: len(sizes)], chunk_sizes=sizes)
        for sizes in ([0, 4], [4, 0], [0, 0, 4])
    ],
    "comm.scatter.own-device-views": [_scatter_to_two(tensor=dense((4, 2), layout="strided"))],
    "comm.scatter.keeps-dense-strides": [_scatter(CHANNELS_LAST, devices=THREE[:2], dim=1)],
    "comm.scatter.negative-ordinal-on-the-cpu": [
        _scatter(dense((4, 2), slot=None), devices=[-1, -1])
    ],
}


@cases("call", AGREED)
def test_scatter_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


#: The values in an error about the first output.
FIRST = {"index": 0, "dim": 0, "source": [4, 2]}
#: For each clause: calls, each with the values in its error.
REFUSED = {
    **{
        name: REFUSED_SCATTERS[name]
        for name in (
            "comm.scatter.refuses-no-devices",
            "comm.scatter.refuses-other-count",
            "comm.scatter.refuses-scalars",
            "comm.scatter.refuses-missing-dimension",
            "comm.scatter.refuses-negative-sizes",
            "comm.scatter.refuses-wrong-total",
            "comm.scatter.refuses-negative-ordinal",
        )
    },
    "comm.scatter.refuses-no-target": [(_scatter(devices=None), {})],
    "comm.scatter.out-refuses-none": [(_scatter_to_out(dim=dim), {}) for dim in (0, 7)],
    "comm.scatter.out-refuses-devices": [
        (_scatter_to_out(dense((4, 2)), devices=devices, chunk_sizes=[4]), {"devices": devices})
        for devices in ((0,), [], "cpu")
    ],
    "comm.scatter.out-refuses-sizes": [
        (_scatter_to_out(dense((4, 2)), chunk_sizes=sizes), {"sizes": sizes})
        for sizes in ([4], [])
    ],
    "comm.scatter.out-refuses-missing-dimension": [
        (_scatter_to_out(dense((9, 9), None), dim=dim), RANGE | {"dim": dim}) for dim in (2, -3)
    ],
    "comm.scatter.out-refuses-cpu": [
        (_scatter_to_out(dense((2, 2), None), dense((1, 2))), {"index": 0}),
        (_scatter_to_out(dense((1, 2)), dense((2, 2), None)), {"index": 1}),
    ],
    "comm.scatter.out-refuses-wrong-shape": [
        (_scatter_to_out(dense(shape), dense((9, 9)), dim=dim), FIRST | {"shape": [*shape]})
        for shape in ((2, 3), (2,), (1, 4, 2))
        for dim in (0, -2)
    ],
    "comm.scatter.out-looks-at-each-in-turn": [
        (_scatter_to_out(dense((2, 3)), dense((2, 2), None)), FIRST | {"shape": [2, 3]})
    ],
    "comm.scatter.out-refuses-wrong-total": [
        (_scatter_to_out(dense((1, 2)), dense((2, 2))), {"dim": 0, "extent": 4, "total": 3})
    ],
    "comm.scatter.out-refuses-leaves": [(_scatter_to_out(dense((4, 2), requires_grad=True)), {})],
}


@refusals(REFUSED)
def test_scatter_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)
