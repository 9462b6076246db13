"""comm.scatter: chunks of one tensor on several devices, also in given tensors (``out``)."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused, refused_with_texts
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import SPARSE, dense, scatter_calls, scatter_out_calls
from spec_tests.strategies.tensors import TensorSpec, counting

UNEVEN_CALL = PublicCall(
    "comm.scatter", {"tensor": dense((5, 2)), "devices": [DeviceAt(0), DeviceAt(1)]}
)


@clause("comm.scatter.slices")
@given(call=scatter_calls())
@example(call=UNEVEN_CALL)
def test_comm_scatter_returns_consecutive_slices(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.even-chunks")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
def test_extents_of_even_chunks_are_rounded_up(target, topology, count):
    def extents(rows):
        tensor = counting((rows, 2), torch.float32, topology.device(0))
        return [len(chunk) for chunk in target.comm.scatter(tensor, topology.take(count))]

    table = {rows: extents(rows) for rows in range(1, 26)}
    assert table == {rows: even_chunks(rows, count) for rows in range(1, 26)}


@clause("comm.scatter.empty-dimension")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_every_device_gets_an_empty_chunk_of_an_empty_dimension(target, topology, count, dim):
    tensor = torch.empty((0, 0), device=topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(count), dim=dim)
    assert [(tuple(chunk.shape), chunk.device) for chunk in chunks] == [
        ((0, 0), device) for device in topology.take(count)
    ]


@clause("comm.scatter.surplus-devices")
def test_comm_scatter_ignores_devices_without_a_chunk(target, baselines, topology):
    arguments = {"tensor": dense((2, 3)), "devices": [DeviceAt(0), DeviceAt(1), 99]}
    checks.agree(PublicCall("comm.scatter", arguments), target, baselines, topology)


@clause("comm.scatter.zero-sizes")
@pytest.mark.parametrize("chunk_sizes", [[0, 4], [4, 0], [0, 0, 4]], ids=str)
def test_chunk_sizes_may_be_zero(target, topology, chunk_sizes):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(len(chunk_sizes)), chunk_sizes)
    assert [len(chunk) for chunk in chunks] == chunk_sizes


@clause("comm.scatter.own-device-views")
@given(call=scatter_calls(slots=(0,), grads=(False,), layouts=("contiguous", "strided")))
def test_chunks_on_the_device_of_the_input_share_its_memory(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.keeps-dense-strides")
def test_copied_chunks_have_dense_strides_in_the_input_order(target, baselines, topology):
    tensor = TensorSpec((4, 4, 2, 3), layout="channels_last", slot=None)
    arguments = {"tensor": tensor, "devices": [DeviceAt(0), DeviceAt(1)], "dim": 1}
    checks.agree(PublicCall("comm.scatter", arguments), target, baselines, topology)


@clause("comm.scatter.returns-tuple")
@given(call=scatter_calls())
def test_chunks_are_returned_in_a_tuple(target, topology, call):
    assert type(call.run(target, call.inputs(topology))) is tuple


@clause("comm.scatter.differentiable")
@given(call=scatter_calls(grads=(True,)))
def test_gradients_of_the_chunks_reach_the_input(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


def _scatter_sparse(chunk_sizes):
    arguments = {
        "tensor": SPARSE,
        "devices": [DeviceAt(0), DeviceAt(0)],
        "chunk_sizes": chunk_sizes,
    }
    return PublicCall("comm.scatter", arguments)


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("chunk_sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_scatter_refuses_sparse_tensors(target, topology, chunk_sizes):
    call = _scatter_sparse(chunk_sizes)
    with pytest.raises(RuntimeError):  # or a subclass, which depends on the devices
        call.run(target, call.inputs(topology))


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("chunk_sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_error_for_sparse_tensors_equals_the_reference(target, reference, topology, chunk_sizes):
    checks.agree(_scatter_sparse(chunk_sizes), target, reference, topology)


SHAPE_TEXT = (
    "Output tensor at index {} has incorrect shape: {}. "
    "Expected same shape except for scatter dim {} as the source tensor: [4, 2]"
)
TOTAL_TEXT = (
    "Total size for output tensors along scatter dim 0 does not match the source tensor size at "
    "dim 0. Expected 4, but got total size 3"
)


def _scatter_to_out(*out, **options):
    arguments = {"tensor": dense((4, 2)), "out": list(out), **options}
    return PublicCall("comm.scatter", arguments)


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
    target.comm.scatter(tensor, out=outs)
    assert [out._version for out in outs] == [version + 1 for version in before]


@clause("comm.scatter.out-copies-onto-itself")
def test_scatter_writes_to_an_output_that_is_a_view_of_the_input(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = list(tensor.split(2))
    version = tensor._version
    target.comm.scatter(tensor, out=outs)
    assert tensor.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tensor._version == version + 2


@clause("comm.scatter.out-refuses-none")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-valid", "dim-invalid"])
def test_scatter_refuses_an_empty_list_of_outputs(target, topology, dim):
    text = "Expected at least one output tensor to scatter to"
    refused(_scatter_to_out(dim=dim), target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-devices")
@pytest.mark.parametrize("devices", [(0,), [], "cpu"], ids=repr)
def test_devices_together_with_out_are_refused(target, topology, devices):
    call = _scatter_to_out(dense((4, 2)), devices=devices, chunk_sizes=[4])
    text = f"'devices' must not be specified when 'out' is specified, but got devices={devices}"
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-sizes")
@pytest.mark.parametrize("sizes", [[4], []], ids=str)
def test_chunk_sizes_together_with_out_are_refused(target, topology, sizes):
    call = _scatter_to_out(dense((4, 2)), chunk_sizes=sizes)
    text = (
        f"'chunk_sizes' must not be specified when 'out' is specified, but got chunk_sizes={sizes}"
    )
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
def test_scatter_with_out_refuses_a_dim_out_of_range(target, topology, dim):
    text = f"Dimension out of range (expected to be in range of [-2, 1], but got {dim})"
    refused(_scatter_to_out(dense((9, 9), None), dim=dim), target, topology, IndexError, text)


@clause("comm.scatter.out-refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_scatter_refuses_an_output_on_the_cpu(target, topology, index):
    out = [dense((1, 2)), dense((1, 2))]
    out[index] = dense((2, 2), None)
    refused_with_texts(_scatter_to_out(*out), target, topology, RuntimeError, [f"index {index}"])


@clause("comm.scatter.out-refuses-wrong-shape")
@pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 4, 2)], ids=str)
@pytest.mark.parametrize("dim", [0, -2])
def test_scatter_refuses_an_output_with_another_shape(target, topology, shape, dim):
    text = SHAPE_TEXT.format(0, list(shape), 0)
    refused(
        _scatter_to_out(dense(shape), dense((9, 9)), dim=dim), target, topology, RuntimeError, text
    )


@clause("comm.scatter.out-looks-at-each-in-turn")
def test_error_names_the_first_of_several_invalid_outputs(target, topology):
    call = _scatter_to_out(dense((2, 3)), dense((2, 2), None))
    refused(call, target, topology, RuntimeError, SHAPE_TEXT.format(0, [2, 3], 0))


@clause("comm.scatter.out-refuses-wrong-total")
def test_outputs_with_another_total_extent_are_refused(target, topology):
    refused(
        _scatter_to_out(dense((1, 2)), dense((2, 2))), target, topology, RuntimeError, TOTAL_TEXT
    )


@clause("comm.scatter.out-refuses-leaves")
def test_scatter_refuses_a_leaf_output_that_requires_grad(target, topology):
    call = _scatter_to_out(dense((4, 2), requires_grad=True))
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    refused(call, target, topology, RuntimeError, text)


SAME_DEVICE = [DeviceAt(0), DeviceAt(0)]
LENGTH_TEXT = (
    "Expected devices and chunk_sizes to be of same length, "
    "but got len(devices) = 2 and len(chunk_sizes) = 1"
)
RANGE_TEXT = "Dimension out of range (expected to be in range of [-2, 1], but got {})"
NEGATIVE_TEXT = (
    "split_with_sizes expects split_sizes have only non-negative entries, "
    "but got split_sizes=[-1, 5]"
)
SUM_TEXT = (
    "split_with_sizes expects split_sizes to sum exactly to 4 "
    "(input tensor's size at dimension 0), but got split_sizes=[2, 1]"
)


def _scatter(tensor=None, devices=SAME_DEVICE, **options):
    tensor = dense((4, 2)) if tensor is None else tensor
    return PublicCall("comm.scatter", {"tensor": tensor, "devices": devices, **options})


@clause("comm.scatter.refuses-other-count")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-valid", "dim-invalid"])
def test_chunk_sizes_of_another_length_than_devices_are_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[4], dim=dim)
    refused(call, target, topology, RuntimeError, LENGTH_TEXT)


@clause("comm.scatter.refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize(
    "chunk_sizes", [None, [2, 2], [9, 9]], ids=["even", "sizes", "sizes-invalid"]
)
def test_scatter_refuses_a_dim_out_of_range(target, topology, dim, chunk_sizes):
    call = _scatter(chunk_sizes=chunk_sizes, dim=dim)
    refused(call, target, topology, IndexError, RANGE_TEXT.format(dim))


@clause("comm.scatter.refuses-negative-sizes")
def test_negative_chunk_size_is_refused(target, topology):
    call = _scatter(chunk_sizes=[-1, 5])
    refused(call, target, topology, RuntimeError, NEGATIVE_TEXT)


@clause("comm.scatter.refuses-wrong-total")
@pytest.mark.parametrize("dim", [0, -2])
def test_chunk_sizes_with_another_sum_are_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[2, 1], dim=dim)
    refused(call, target, topology, RuntimeError, SUM_TEXT)


@clause("comm.scatter.refuses-no-target")
def test_call_with_neither_devices_nor_out_is_refused(target, topology):
    text = "'NoneType' object is not iterable"
    refused(_scatter(devices=None), target, topology, TypeError, text)


@clause("comm.scatter.negative-ordinal-on-the-cpu")
def test_device_minus_one_is_the_cpu_for_a_cpu_tensor(target, baselines, topology):
    call = _scatter(dense((4, 2), slot=None), devices=[-1, -1])
    checks.agree(call, target, baselines, topology)
