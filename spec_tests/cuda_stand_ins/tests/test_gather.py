"""``torch._C._gather`` and ``_gather_out``: the stand-ins, or the primitives of a CUDA build."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.tensors import counting


def chunks(topology, *shapes, **options):
    return [
        counting(shape).to(device=topology.device(slot), **options)
        for slot, shape in enumerate(shapes)
    ]


def gather_new(tensors, dim):
    return torch._C._gather(tensors, dim, None)


def gather_into_out(tensors, dim):
    return torch._C._gather_out(tensors, torch.empty(4, 5), dim)


both_functions = pytest.mark.parametrize(
    "gather", [gather_new, gather_into_out], ids=["gather", "gather_out"]
)


@both_functions
def test_empty_list_of_tensors_raises(topology, gather):
    with pytest.raises(RuntimeError, match="Expected at least one tensor to gather from"):
        gather([], 0)


@both_functions
def test_dim_out_of_range_of_the_first_tensor_raises(topology, gather):
    text = r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"
    with pytest.raises(IndexError, match=text):
        gather(chunks(topology, (2, 5), (2, 5, 1)), 2)


@pytest.mark.parametrize(
    ("gather", "text"),
    [
        (gather_new, "but tensor at index 1 has device cpu"),
        (gather_into_out, "but tensor at index 1 has device 'cpu'"),
    ],
    ids=["gather", "gather_out"],
)
def test_chunk_on_the_cpu_raises(topology, gather, text):
    with pytest.raises(RuntimeError) as caught:
        gather([*chunks(topology, (2, 5)), counting((2, 5))], 0)
    name = topology.accelerator.upper()
    assert f"Expected all input tensors to be {name} tensors, {text}" in str(caught.value)


@both_functions
def test_different_number_of_dimensions_raises(topology, gather):
    with pytest.raises(RuntimeError) as caught:
        gather(chunks(topology, (2, 5), (2, 5, 1)), 0)
    # The space before "has" differs between PyTorch releases.
    assert "to have the same number of dimensions, but tensor at index 1" in str(caught.value)
    assert "has 3 dimensions, (expected 2)" in str(caught.value)


@both_functions
def test_different_size_outside_dim_raises(topology, gather):
    with pytest.raises(RuntimeError) as caught:
        gather(chunks(topology, (3, 5), (2, 4)), 0)
    text = "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 5]"
    assert text in str(caught.value)


@both_functions
def test_wrong_shape_raises_before_a_later_cpu_tensor(topology, gather):
    with pytest.raises(RuntimeError, match="Input tensor at index 1 has invalid shape"):
        gather([*chunks(topology, (2, 5), (2, 4)), counting((2, 5))], 0)


@both_functions
def test_scalars_raise(topology, gather):
    scalar = torch.tensor(1.0, device=topology.device(0))
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        gather([scalar, scalar], -1)


@pytest.mark.parametrize("slot", [None, 0, 1], ids=["cpu", "first", "second"])
def test_destination_is_an_ordinal_or_the_cpu(topology, slot):
    destination = topology.device(slot)
    index = -1 if slot is None else destination.index
    result = torch._C._gather(chunks(topology, (2, 5), (1, 5)), 0, index)
    assert result.device == destination
    assert torch.equal(result.cpu(), torch.cat([counting((2, 5)), counting((1, 5))]))


def test_destination_defaults_to_the_current_device(topology):
    with torch.accelerator.device_index(topology.device(1).index):
        result = torch._C._gather(chunks(topology, (2, 5)), 0, None)
    assert result.device == topology.device(1)


def test_destination_below_minus_one_raises(topology):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        STAND_INS["_gather"](chunks(topology, (2, 5)), 0, -2)


def test_result_of_one_chunk_on_the_destination_is_a_copy(topology):
    (chunk,) = chunks(topology, (2, 5))
    result = torch._C._gather([chunk], 0, chunk.device.index)
    assert result.data_ptr() != chunk.data_ptr()
    assert not result._is_view()


def test_negative_dim_counts_from_the_last(topology):
    result = torch._C._gather(chunks(topology, (2, 5), (2, 1)), -1, -1)
    assert torch.equal(result, torch.cat([counting((2, 5)), counting((2, 1))], 1))


@pytest.mark.parametrize(
    ("formats", "is_kept"),
    [
        ([torch.channels_last, torch.channels_last], True),
        ([torch.channels_last, torch.contiguous_format], False),
        ([torch.contiguous_format, torch.channels_last], False),
        ([torch.channels_last, torch.contiguous_format, torch.channels_last], False),
    ],
    ids=["all", "first", "second", "all-but-second"],
)
def test_result_is_channels_last_if_all_chunks_are(topology, formats, is_kept):
    tensors = [
        counting((2, 3, 4, 5)).to(device=topology.device(slot), memory_format=memory_format)
        for slot, memory_format in enumerate(formats)
    ]
    result = torch._C._gather(tensors, 0, -1)
    assert result.is_contiguous(memory_format=torch.channels_last) == is_kept
    assert result.is_contiguous() != is_kept


def test_result_keeps_channels_last_3d(topology):
    tensors = chunks(topology, (2, 3, 4, 5, 6), memory_format=torch.channels_last_3d)
    assert torch._C._gather(tensors, 0, -1).is_contiguous(memory_format=torch.channels_last_3d)


def test_result_of_other_strides_is_contiguous(topology):
    tensor = counting((5, 2)).to(topology.device(0)).t()
    result = torch._C._gather([tensor, tensor], 0, -1)
    assert result.is_contiguous()
    assert torch.equal(result, torch.cat([tensor, tensor]).cpu())


@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.float32, torch.int64), (torch.int32, torch.float32), (torch.float16, torch.float64)],
    ids=str,
)
def test_result_has_the_dtype_of_the_first_chunk(topology, first, second):
    tensors = [
        torch.tensor([1, 2]).to(topology.device(0), first),
        torch.tensor([2.75]).to(topology.device(1), second),
    ]
    result = torch._C._gather(tensors, 0, -1)
    assert result.dtype == first
    assert torch.equal(result[2:], torch.tensor([2.75]).to(second).to(first))


def test_chunks_of_length_zero_are_concatenated(topology):
    result = torch._C._gather(chunks(topology, (0, 5), (2, 5), (0, 5)), 0, -1)
    assert torch.equal(result, counting((2, 5)))


def test_empty_vector_among_matrices_raises(topology):
    with pytest.raises(RuntimeError, match="to have the same number of dimensions"):
        torch._C._gather(chunks(topology, (2, 5), (0,)), 0, -1)


@both_functions
def test_chunk_that_requires_grad_raises_in_grad_mode(topology, gather):
    tensors = chunks(topology, (2, 5), (2, 5))
    tensors[1].requires_grad_()
    with pytest.raises(RuntimeError, match="returns multiple views"):
        gather(tensors, 0)


@both_functions
def test_result_without_grad_mode_has_no_graph(topology, gather):
    tensors = [tensor.requires_grad_() for tensor in chunks(topology, (2, 5), (2, 5))]
    with torch.no_grad():
        assert not gather(tensors, 0).requires_grad


def test_sparse_tensors_raise(topology):
    sparse = torch.eye(2).to_sparse().to(topology.device(0))
    with pytest.raises(NotImplementedError, match="aten::as_strided"):
        torch._C._gather([sparse, sparse], 0, -1)


def test_out_of_the_wrong_shape_raises(topology):
    with pytest.raises(RuntimeError) as caught:
        torch._C._gather_out(chunks(topology, (2, 5), (2, 5)), torch.empty(3, 5), 0)
    assert "Expected out tensor to have shape [4, 5], but got [3, 5]" in str(caught.value)


@pytest.mark.parametrize("slot", [None, 0, 1], ids=["cpu", "first", "second"])
def test_out_on_any_device_is_returned(topology, slot):
    out = torch.empty(3, 5, device=topology.device(slot))
    result = torch._C._gather_out(chunks(topology, (2, 5), (1, 5)), out, 0)
    assert result is out
    assert torch.equal(out.cpu(), torch.cat([counting((2, 5)), counting((1, 5))]))


def test_out_keeps_its_dtype_and_strides(topology):
    out = torch.empty(5, 4, dtype=torch.float64, device=topology.device(0)).t()
    torch._C._gather_out(chunks(topology, (2, 5), (2, 5)), out, 0)
    assert out.stride() == (1, 4)
    assert torch.equal(out.cpu(), torch.cat([counting((2, 5))] * 2).double())


@pytest.mark.parametrize("count", [1, 2, 3], ids="chunks={}".format)
def test_version_counter_of_out_increases_by_one_per_chunk(topology, count):
    out = torch.empty(2 * count, 5)
    before = out._version
    torch._C._gather_out(chunks(topology, *[(2, 5)] * count), out, 0)
    assert out._version == before + count


def test_leaf_out_that_requires_grad_raises(topology):
    out = torch.empty(4, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        torch._C._gather_out(chunks(topology, (2, 5), (2, 5)), out, 0)
