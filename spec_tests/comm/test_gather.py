"""comm.gather: concatenation of chunks from several devices, also into given tensors (``out``)."""

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.outcome import raised_by
from spec_tests.checks.refusals import refusals, refused
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt, KeywordCall, build
from spec_tests.strategies.comm import SPARSE, dense, gather_calls, gather_out_calls, scatter_calls
from spec_tests.strategies.refused_calls import OTHER_DIMENSIONS, OTHER_SHAPES, RANGE
from spec_tests.strategies.tensors import counting


def _gather(*tensors, **options):
    arguments = {"tensors": list(tensors), "destination": DeviceAt(0), **options}
    return KeywordCall("comm.gather", arguments)


@clause("comm.gather.joined")
@given(call=gather_calls())
def test_comm_gather_concatenates_chunks_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.gather.undoes-scatter")
@given(call=scatter_calls(grads=(False,)))
def test_gather_of_scattered_chunks_returns_the_tensor(target, topology, call):
    inputs = call.inputs(topology)
    chunks = call.run(target, inputs)
    joined = target.comm.gather(chunks, inputs["dim"], "cpu")
    checks.same(joined, inputs["tensor"].cpu(), call)


@clause("comm.gather.without-grad-mode")
def test_gather_without_grad_mode_returns_a_tensor_that_requires_no_grad(target, topology):
    chunks = build([dense(requires_grad=True)] * 2, topology)
    with torch.no_grad():
        joined = target.comm.gather(chunks, destination=topology.device(0))
    checks.same(joined.requires_grad, False, place="requires_grad")
    checks.same(joined.tolist(), chunks[0].tolist() * 2)


@clause("comm.gather.always-new")
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
def test_gather_shares_no_memory_with_chunks_or_the_next_result(target, topology, count):
    call = _gather(*[dense((2, 2))] * count)
    inputs = call.inputs(topology)
    with torch.no_grad():  # a target may keep results without a gradient
        result = call.run(target, inputs).fill_(-1)
        call.run(target, inputs)
    checks.same(result.unique().tolist(), [-1], place="aliasing")
    chunks = [chunk.tolist() for chunk in inputs["tensors"]]
    checks.same(chunks, [[[0, 1], [2, 3]]] * count, place="aliasing")


@clause("comm.gather.current-device")
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize(
    "spelling", [lambda kind: None, str, torch.device], ids=["None", "string", "device"]
)
def test_destination_without_index_is_the_current_device(target, topology, slot, spelling):
    topology.require(distinct=2)
    call = _gather(dense(), dense(slot=1), destination=spelling(topology.accelerator))
    with torch.accelerator.device_index(topology.device(slot).index):
        joined = call.run(target, call.inputs(topology))
    checks.same(joined.device, topology.device(slot), call, place="device")


@clause("comm.gather.refuses-sparse")
def test_sparse_chunks_are_refused(target, topology):
    call = _gather(SPARSE, SPARSE)
    inputs, expected = call.inputs(topology), call.inputs(topology)
    with pytest.raises(RuntimeError):  # or a subclass, which depends on the devices
        call.run(target, inputs)
    checks.same(snapshot(inputs, inputs), snapshot(expected, expected), call, place="input")


def _gather_to_out(*tensors, out=None, **options):
    out = dense((8, 3)) if out is None else out
    return KeywordCall("comm.gather", {"tensors": list(tensors), "out": out, **options})


@clause("comm.gather.out-filled")
@given(call=gather_out_calls())
def test_gather_fills_and_returns_the_output(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.gather.out-versions")
@clause("comm.gather.out-filled")
@pytest.mark.parametrize("count", [1, 2, 3], ids="chunks={}".format)
def test_gather_increases_the_output_version_by_one_per_chunk(target, topology, count):
    chunks = [counting((2, 3), torch.float32, device) for device in topology.take(count)]
    out = torch.empty((2 * count, 3), device=topology.device(0))
    version = out._version
    checks.shares_memory(target.comm.gather(chunks, out=out), out)
    checks.same(out._version, version + count, place="versions")


LEAF = dense(requires_grad=True)
#: For each clause: calls with results like those of the baselines.
AGREED = {
    "comm.gather.keeps-channels-last": [
        _gather(*[dense(shape, slot, layout="channels_last") for slot in (0, 1)], dim=dim)
        for shape in ((2, 3, 2, 2), (2, 3, 2, 2, 2))
        for dim in (0, 1, -1)
    ],
    "comm.gather.minus-one-is-the-cpu": [_gather(dense(), dense(), destination=-1)],
    "comm.gather.other-strides-become-row-major": [
        _gather(dense((2, 3, 2, 2), layout="channels_last"), dense((2, 3, 2, 2)))
    ],
    "comm.gather.dtype-of-the-first": [
        _gather(dense(dtype=first), dense(slot=1, dtype=second))
        for first, second in ((torch.int32, torch.float32), (torch.float32, torch.int64))
    ],
}


@cases("call", AGREED)
def test_gather_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


#: Pairs of chunks. Another one of each pair is on the CPU.
CHUNKS = [(dense(slot=None), dense()), (dense(), dense(slot=None))]
#: For each clause: calls, each with the values in its error.
REFUSED = {
    "comm.gather.refuses-gradients": [
        (_gather(*chunks), {}) for chunks in ((LEAF, dense()), (dense(), LEAF))
    ],
    "comm.gather.out-refuses-gradients": [
        (_gather_to_out(LEAF, dense()), {}),
        (_gather_to_out(dense(), dense(), out=dense((8, 3), requires_grad=True)), {}),
    ],
    "comm.gather.refuses-none": [(_gather(dim=dim), {}) for dim in (0, 7)],
    "comm.gather.refuses-missing-dimension": [
        (_gather(dense(slot=None), dense((1, 1, 1)), dim=dim), RANGE | {"dim": dim})
        for dim in (2, -3)
    ],
    "comm.gather.refuses-other-shapes": [
        (_gather(*chunks, dim=dim), values) for chunks, dim, values in OTHER_SHAPES
    ],
    "comm.gather.refuses-other-dimensions": [
        (_gather(*chunks, dim=dim), values) for chunks, dim, values in OTHER_DIMENSIONS
    ],
    "comm.gather.refuses-cpu": [
        (_gather(*chunks), {"index": index}) for index, chunks in enumerate(CHUNKS)
    ],
    "comm.gather.looks-at-each-in-turn": [
        (
            _gather(dense(), dense((2, 5)), dense(slot=None)),
            {"index": 1, "shape": [2, 5], "expected": [2, 3]},
        )
    ],
    "comm.gather.out-refuses-destination": [
        (
            _gather_to_out(dense(), dense(), destination=destination),
            {"destination": destination},
        )
        for destination in ("cpu", 0, -1, torch.device("cpu"))
    ],
    "comm.gather.out-refuses-none": [(_gather_to_out(dim=7), {})],
    "comm.gather.out-refuses-missing-dimension": [
        (_gather_to_out(dense(), dense(), dim=2), RANGE | {"dim": 2})
    ],
    "comm.gather.out-refuses-other-chunks": [
        (_gather_to_out(*chunks, dim=dim), values | {"number": number})
        for number, found in enumerate([OTHER_SHAPES, OTHER_DIMENSIONS])
        for chunks, dim, values in found
    ],
    "comm.gather.out-refuses-cpu-chunks": [
        (_gather_to_out(*chunks), {"index": index}) for index, chunks in enumerate(CHUNKS)
    ],
    "comm.gather.out-refuses-other-shapes": [
        (
            _gather_to_out(dense(), dense(), out=dense(shape)),
            {"expected": [8, 3], "shape": [*shape]},
        )
        for shape in ((7, 3), (8, 1), (24,), (1, 8, 3))
    ],
}


@refusals(REFUSED)
def test_gather_refuses_the_call(target, topology, call, error):
    refused(call, target, topology, error)


def _cpu_chunk_error(target, topology, index, **options):
    """Return the error of gather if chunk number ``index`` is on the CPU."""
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    call = KeywordCall("comm.gather", {"tensors": chunks, **options})
    with pytest.raises(RuntimeError) as caught:
        call.run(target, call.inputs(topology))
    return raised_by(caught.value)


@clause("divergences.CO-5.one-text")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_error_for_a_cpu_chunk_is_the_same_with_and_without_out(target, topology, index):
    without_out = _cpu_chunk_error(target, topology, index)
    with_out = _cpu_chunk_error(target, topology, index, out=dense((8, 3)))
    checks.same(without_out, with_out)
