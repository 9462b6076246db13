"""comm.gather: concatenation of chunks from several devices, also into given tensors (``out``)."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt, PublicCall, build
from spec_tests.strategies.comm import SPARSE, dense, gather_calls, gather_out_calls, scatter_calls
from spec_tests.strategies.tensors import TensorSpec, counting


def _gather(*tensors, **options):
    arguments = {"tensors": list(tensors), "destination": DeviceAt(0), **options}
    return PublicCall("comm.gather", arguments)


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


@clause("comm.gather.other-strides-become-row-major")
def test_result_is_row_major_unless_all_chunks_are_channels_last(target, topology):
    specs = [TensorSpec((2, 3, 2, 2), layout=layout) for layout in ("channels_last", "contiguous")]
    joined = target.comm.gather(build(specs, topology), 0, topology.device(0))
    assert joined.stride() == (12, 4, 2, 1)


@clause("comm.gather.dtype-of-the-first")
@pytest.mark.parametrize("dtypes", [(torch.int32, torch.float32), (torch.float32, torch.int64)])
def test_result_has_the_dtype_of_the_first_chunk(target, baselines, topology, dtypes):
    chunks = [TensorSpec((2, 3), dtype, slot=slot) for slot, dtype in enumerate(dtypes)]
    checks.agree(_gather(*chunks), target, baselines, topology)


@clause("comm.gather.current-device")
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("spelling", ["None", "string", "device"])
def test_gather_destination_defaults_to_the_current_device(target, topology, slot, spelling):
    kind = topology.accelerator
    destination = {"None": None, "string": kind, "device": torch.device(kind)}[spelling]
    chunks = [counting((2, 3), torch.float32, device) for device in topology.take(2)]
    with torch.accelerator.device_index(topology.device(slot).index):
        joined = target.comm.gather(chunks, destination=destination)
    assert joined.device == topology.device(slot)


@clause("comm.gather.refuses-gradients")
@pytest.mark.parametrize("grads", [(True, False), (False, True)], ids=["first", "second"])
def test_chunks_that_require_grad_are_refused_in_grad_mode(target, topology, grads):
    call = _gather(*[dense(requires_grad=grad) for grad in grads])
    with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
        call.run(target, call.inputs(topology))


@clause("comm.gather.refuses-gradients")
@pytest.mark.parametrize("grads", [(True, False), (False, True)], ids=["first", "second"])
def test_error_for_chunks_that_require_grad_equals_the_reference(
    target, reference, topology, grads
):
    call = _gather(*[dense(requires_grad=grad) for grad in grads])
    checks.agree(call, target, reference, topology)


@clause("comm.gather.without-grad-mode")
def test_gather_without_grad_mode_returns_a_tensor_that_requires_no_grad(target, topology):
    chunks = build([dense(requires_grad=True)] * 2, topology)
    with torch.no_grad():
        joined = target.comm.gather(chunks, destination=topology.device(0))
    assert not joined.requires_grad
    assert joined.tolist() == chunks[0].tolist() * 2


@clause("comm.gather.refuses-sparse")
def test_sparse_chunks_are_refused(target, topology):
    call = _gather(SPARSE, SPARSE)
    with pytest.raises(RuntimeError):  # or a subclass, which depends on the devices
        call.run(target, call.inputs(topology))


def _gather_to_out(*tensors, out=None, **options):
    out = dense((8, 3)) if out is None else out
    return PublicCall("comm.gather", {"tensors": list(tensors), "out": out, **options})


@clause("comm.gather.out-filled")
@given(call=gather_out_calls())
def test_gather_fills_and_returns_the_output(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.gather.out-versions")
@pytest.mark.parametrize("count", [1, 2, 3], ids="chunks={}".format)
def test_gather_increases_the_output_version_by_one_per_chunk(target, topology, count):
    chunks = [counting((2, 3), torch.float32, device) for device in topology.take(count)]
    out = torch.empty((2 * count, 3), device=topology.device(0))
    version = out._version
    target.comm.gather(chunks, out=out)
    assert out._version == version + count


GRADIENT_SOURCES = pytest.mark.parametrize("source", ["chunk", "out"])


def _gather_with_gradient(source):
    chunk = dense(requires_grad=source == "chunk")
    return _gather_to_out(chunk, dense(), out=dense((8, 3), requires_grad=source == "out"))


@clause("comm.gather.out-refuses-gradients")
@GRADIENT_SOURCES
def test_chunk_or_output_that_requires_grad_is_refused_in_grad_mode(target, topology, source):
    call = _gather_with_gradient(source)
    with pytest.raises(RuntimeError, match="modified inplace"):
        call.run(target, call.inputs(topology))


@clause("comm.gather.out-refuses-gradients")
@GRADIENT_SOURCES
def test_error_for_gradients_with_out_equals_the_reference(target, reference, topology, source):
    checks.agree(_gather_with_gradient(source), target, reference, topology)


SHAPE_TEXT = "Input tensor at index 1 has invalid shape [2, 5], but expected [2, 3]"
RANGE_TEXT = "Dimension out of range (expected to be in range of [-2, 1], but got {})"
NONE_TEXT = "Expected at least one tensor to gather from"
CPU_TEXT = "Expected all input tensors to be {{KIND}} tensors, but tensor at index {} has device "
#: Pairs of chunks. Another one of each pair is on the CPU.
CHUNKS = [(dense(slot=None), dense()), (dense(), dense(slot=None))]
#: Clause -> calls, each with the class and the text of its error.
REFUSED = {
    "comm.gather.refuses-none": [(_gather(dim=dim), RuntimeError, NONE_TEXT) for dim in (0, 7)],
    "comm.gather.refuses-missing-dimension": [
        (
            _gather(dense(slot=None), dense((1, 1, 1)), dim=dim),
            IndexError,
            RANGE_TEXT.format(dim),
        )
        for dim in (2, -3)
    ],
    "comm.gather.refuses-cpu": [
        (_gather(*chunks), RuntimeError, [CPU_TEXT.format(index), "cpu"])
        for index, chunks in enumerate(CHUNKS)
    ],
    "comm.gather.looks-at-each-in-turn": [
        (_gather(dense(), dense((2, 5)), dense(slot=None)), RuntimeError, SHAPE_TEXT)
    ],
    "comm.gather.out-refuses-destination": [
        (
            _gather_to_out(dense(), dense(), destination=destination),
            RuntimeError,
            "'destination' must not be specified when 'out' is specified, "
            f"but got destination={destination}",
        )
        for destination in ("cpu", 0, -1, torch.device("cpu"))
    ],
    "comm.gather.out-refuses-none": [(_gather_to_out(dim=7), RuntimeError, NONE_TEXT)],
    "comm.gather.out-refuses-missing-dimension": [
        (_gather_to_out(dense(), dense(), dim=2), IndexError, RANGE_TEXT.format(2))
    ],
    "comm.gather.out-refuses-cpu-chunks": [
        (_gather_to_out(*chunks), RuntimeError, [f"index {index}"])
        for index, chunks in enumerate(CHUNKS)
    ],
    "comm.gather.out-refuses-other-shapes": [
        (
            _gather_to_out(dense(), dense(), out=dense(shape)),
            RuntimeError,
            f"Expected out tensor to have shape [8, 3], but got {list(shape)}",
        )
        for shape in ((7, 3), (8, 1), (24,), (1, 8, 3))
    ],
}


@cases("call, error, text", REFUSED)
def test_gather_refuses_the_call(target, topology, call, error, text):
    refused(call, target, topology, error, text)
