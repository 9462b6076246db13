"""comm.gather: joining chunks of many devices into one tensor."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused, refused_with_facts
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall, build
from spec_tests.strategies.comm import SPARSE, dense, gather_calls, scatter_calls
from spec_tests.strategies.tensors import TensorSpec, counting

CPU_INPUT = "Expected all input tensors to be {{KIND}} tensors, but tensor at index {} has device "
DIMENSIONS = (
    "Expected all input tensors to have the same number of dimensions, "
    "but tensor at index {} has {} dimensions, (expected 2)"
)
SHAPE = "Input tensor at index {} has invalid shape {}, but expected {}"


def _gather(*tensors, **rest):
    arguments = {"tensors": list(tensors), "destination": DeviceAt(0), **rest}
    return PublicCall("comm.gather", arguments)


@clause("comm.gather.joined")
@given(call=gather_calls())
def test_chunks_are_joined_in_order(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("comm.gather.undoes-scatter")
@given(call=scatter_calls(grads=(False,)))
def test_gathering_what_was_scattered_gives_the_tensor_back(target, topology, call):
    inputs = call.inputs(topology)
    chunks = call.run(target, inputs)
    joined = target.comm.gather(chunks, inputs["dim"], "cpu")
    checks.same(joined, inputs["tensor"].cpu(), call)


@clause("comm.gather.always-new")
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
def test_the_result_shares_no_memory_with_the_chunks(target, topology, count):
    chunks = [counting((2, 3), torch.float32, topology.device(0)) for _ in range(count)]
    joined = target.comm.gather(chunks, destination=topology.device(0))
    joined.fill_(-1)
    assert [chunk.tolist() for chunk in chunks] == [[[0, 1, 2], [3, 4, 5]]] * count


@clause("comm.gather.keeps-channels-last")
@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (2, 3, 2, 2, 2)], ids=["images", "volumes"])
@pytest.mark.parametrize("dim", range(-4, 4), ids="dim={}".format)
def test_channels_last_chunks_stay_channels_last(target, answers, topology, shape, dim):
    tensors = [TensorSpec(shape, layout="channels_last", slot=slot) for slot in (0, 1)]
    checks.agree(_gather(*tensors, dim=dim), target, answers, topology)


@clause("comm.gather.other-strides-become-row-major")
@pytest.mark.parametrize(
    "layouts",
    [
        ("channels_last", "contiguous"),
        ("contiguous", "channels_last"),
        ("transposed", "transposed"),
        ("strided", "strided"),
    ],
    ids="-".join,
)
def test_chunks_of_other_or_mixed_formats_become_row_major(target, topology, layouts):
    specs = [TensorSpec((2, 3, 2, 2), layout=layout) for layout in layouts]
    joined = target.comm.gather(build(specs, topology), 0, topology.device(0))
    assert joined.stride() == (12, 4, 2, 1)


@clause("comm.gather.dtype-of-the-first")
@pytest.mark.parametrize("dtypes", [(torch.int32, torch.float32), (torch.float32, torch.int64)])
def test_the_dtype_is_that_of_the_first_chunk(target, answers, topology, dtypes):
    chunks = [TensorSpec((2, 3), dtype, slot=slot) for slot, dtype in enumerate(dtypes)]
    checks.agree(_gather(*chunks), target, answers, topology)


@clause("comm.gather.current-device")
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("spelled", ["None", "text", "device"])
def test_the_destination_is_the_current_device_unless_given(target, topology, slot, spelled):
    kind = topology.accelerator
    destination = {"None": None, "text": kind, "device": torch.device(kind)}[spelled]
    chunks = [counting((2, 3), torch.float32, device) for device in topology.take(2)]
    with torch.accelerator.device_index(topology.device(slot).index):
        joined = target.comm.gather(chunks, destination=destination)
    assert joined.device == topology.device(slot)


@clause("comm.gather.minus-one-is-the-cpu")
def test_minus_one_means_the_cpu_and_warns(target, answers, topology):
    call = _gather(dense(), dense(), destination=-1)
    checks.agree(call, target, answers, topology)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        joined = call.run(target, call.inputs(topology))
    assert joined.device.type == "cpu"


@clause("comm.gather.refuses-gradients")
@pytest.mark.parametrize("grads", [(True, False), (False, True)], ids=["first", "second"])
def test_chunks_that_require_a_gradient_are_refused_in_grad_mode(target, topology, grads):
    call = _gather(*[dense(requires_grad=grad) for grad in grads])
    with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
        call.run(target, call.inputs(topology))


@clause("comm.gather.refuses-gradients")
@pytest.mark.parametrize("grads", [(True, False), (False, True)], ids=["first", "second"])
def test_such_chunks_are_refused_in_the_words_of_the_reference(target, reference, topology, grads):
    call = _gather(*[dense(requires_grad=grad) for grad in grads])
    checks.agree(call, target, reference, topology)


@clause("comm.gather.without-grad-mode")
def test_without_grad_mode_the_result_requires_no_gradient(target, topology):
    chunks = build([dense(requires_grad=True)] * 2, topology)
    with torch.no_grad():
        joined = target.comm.gather(chunks, destination=topology.device(0))
    assert not joined.requires_grad
    assert joined.tolist() == chunks[0].tolist() * 2


@clause("comm.gather.refuses-none")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-right", "dim-wrong"])
def test_no_chunk_at_all_is_refused(target, topology, dim):
    text = "Expected at least one tensor to gather from"
    refused(_gather(dim=dim), target, topology, RuntimeError, text)


@clause("comm.gather.refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
def test_a_dimension_that_the_first_chunk_lacks_is_refused(target, topology, dim):
    text = f"Dimension out of range (expected to be in range of [-2, 1], but got {dim})"
    call = _gather(dense(slot=None), dense((1, 1, 1)), dim=dim)
    refused(call, target, topology, IndexError, text)


@clause("comm.gather.refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_a_chunk_on_the_cpu_is_refused(target, topology, index):
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    facts = [CPU_INPUT.format(index), "cpu"]
    refused_with_facts(_gather(*chunks), target, topology, RuntimeError, facts)


@clause("comm.gather.refuses-other-dimensions")
@pytest.mark.parametrize("shape", [(4,), (4, 3, 1)], ids=str)
def test_a_chunk_of_another_number_of_dimensions_is_refused(target, topology, shape):
    call = _gather(dense(), dense(shape))
    refused(call, target, topology, RuntimeError, DIMENSIONS.format(1, len(shape)))


@clause("comm.gather.refuses-other-shapes")
@pytest.mark.parametrize(("dim", "expected"), [(0, [2, 3]), (-1, [4, 5])], ids=str)
def test_a_chunk_of_another_shape_is_refused(target, topology, dim, expected):
    call = _gather(dense(), dense((2, 5)), dim=dim)
    refused(call, target, topology, RuntimeError, SHAPE.format(1, [2, 5], expected))


@clause("comm.gather.looks-at-each-in-turn")
def test_a_wrong_shape_is_named_before_a_later_chunk_on_the_cpu(target, topology):
    call = _gather(dense(), dense((2, 5)), dense(slot=None))
    refused(call, target, topology, RuntimeError, SHAPE.format(1, [2, 5], [2, 3]))


@clause("comm.gather.refuses-sparse")
def test_sparse_chunks_are_refused(target, topology):
    call = _gather(SPARSE, SPARSE)
    with pytest.raises(RuntimeError):
        call.run(target, call.inputs(topology))


@clause("comm.gather.refuses-sparse")
def test_sparse_chunks_are_refused_in_the_words_of_the_reference(target, reference, topology):
    checks.agree(_gather(SPARSE, SPARSE), target, reference, topology)
