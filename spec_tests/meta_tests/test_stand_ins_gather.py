"""``torch._C._gather`` and ``_gather_out``: the stand-ins, or on a CUDA build the real ones."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.tensors import counting


def chunks(topology, *shapes, **options):
    return [
        counting(shape).to(device=topology.device(slot), **options)
        for slot, shape in enumerate(shapes)
    ]


def into_new(tensors, dim):
    return torch._C._gather(tensors, dim, None)


def into_out(tensors, dim):
    return torch._C._gather_out(tensors, torch.empty(4, 5), dim)


either = pytest.mark.parametrize("gather", [into_new, into_out], ids=["gather", "gather_out"])


@either
def test_nothing_to_gather_is_refused(topology, gather):
    with pytest.raises(RuntimeError, match="Expected at least one tensor to gather from"):
        gather([], 0)


@either
def test_a_dimension_that_the_first_lacks_is_refused(topology, gather):
    text = r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"
    with pytest.raises(IndexError, match=text):
        gather(chunks(topology, (2, 5), (2, 5, 1)), 2)


@pytest.mark.parametrize(
    ("gather", "text"),
    [
        (into_new, "but tensor at index 1 has device cpu"),
        (into_out, "but tensor at index 1 has device 'cpu'"),
    ],
    ids=["gather", "gather_out"],
)
def test_a_chunk_on_the_cpu_is_refused(topology, gather, text):
    with pytest.raises(RuntimeError) as caught:
        gather([*chunks(topology, (2, 5)), counting((2, 5))], 0)
    kind = topology.accelerator.upper()
    assert f"Expected all input tensors to be {kind} tensors, {text}" in str(caught.value)


@either
def test_another_number_of_dimensions_is_refused(topology, gather):
    with pytest.raises(RuntimeError) as caught:
        gather(chunks(topology, (2, 5), (2, 5, 1)), 0)
    # Releases differ in the space before "has".
    assert "to have the same number of dimensions, but tensor at index 1" in str(caught.value)
    assert "has 3 dimensions, (expected 2)" in str(caught.value)


@either
def test_another_size_beside_dim_is_refused(topology, gather):
    with pytest.raises(RuntimeError) as caught:
        gather(chunks(topology, (3, 5), (2, 4)), 0)
    text = "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 5]"
    assert text in str(caught.value)


@either
def test_an_early_wrong_shape_wins_over_a_later_cpu_tensor(topology, gather):
    with pytest.raises(RuntimeError, match="Input tensor at index 1 has invalid shape"):
        gather([*chunks(topology, (2, 5), (2, 4)), counting((2, 5))], 0)


@either
def test_scalars_are_refused(topology, gather):
    scalar = torch.tensor(1.0, device=topology.device(0))
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        gather([scalar, scalar], -1)


@pytest.mark.parametrize("slot", [None, 0, 1], ids=["cpu", "first", "second"])
def test_the_destination_is_an_ordinal_or_the_cpu(topology, slot):
    destination = topology.device(slot)
    index = -1 if slot is None else destination.index
    result = torch._C._gather(chunks(topology, (2, 5), (1, 5)), 0, index)
    assert result.device == destination
    assert torch.equal(result.cpu(), torch.cat([counting((2, 5)), counting((1, 5))]))


def test_the_destination_is_the_current_device_by_default(topology):
    with torch.accelerator.device_index(topology.device(1).index):
        result = torch._C._gather(chunks(topology, (2, 5)), 0, None)
    assert result.device == topology.device(1)


def test_a_destination_below_minus_one_is_refused(topology):
    # Unspecified in the real primitive, so only the stand-in is asked.
    with pytest.raises(RuntimeError, match="non-negative device index, but got -2"):
        STAND_INS["_gather"](chunks(topology, (2, 5)), 0, -2)


def test_the_result_is_new_even_for_one_chunk_in_place(topology):
    (chunk,) = chunks(topology, (2, 5))
    result = torch._C._gather([chunk], 0, chunk.device.index)
    assert result.data_ptr() != chunk.data_ptr()
    assert not result._is_view()


def test_a_negative_dim_counts_from_the_last(topology):
    result = torch._C._gather(chunks(topology, (2, 5), (2, 1)), -1, -1)
    assert torch.equal(result, torch.cat([counting((2, 5)), counting((2, 1))], 1))


@pytest.mark.parametrize(
    ("formats", "kept"),
    [
        ([torch.channels_last, torch.channels_last], True),
        ([torch.channels_last, torch.contiguous_format], False),
        ([torch.contiguous_format, torch.channels_last], False),
        ([torch.channels_last, torch.contiguous_format, torch.channels_last], False),
    ],
    ids=["all", "first", "second", "but-one"],
)
def test_channels_last_is_kept_if_all_chunks_have_it(topology, formats, kept):
    tensors = [
        counting((2, 3, 4, 5)).to(device=topology.device(slot), memory_format=memory_format)
        for slot, memory_format in enumerate(formats)
    ]
    result = torch._C._gather(tensors, 0, -1)
    assert result.is_contiguous(memory_format=torch.channels_last) == kept
    assert result.is_contiguous() != kept


def test_channels_last_3d_is_kept(topology):
    tensors = chunks(topology, (2, 3, 4, 5, 6), memory_format=torch.channels_last_3d)
    assert torch._C._gather(tensors, 0, -1).is_contiguous(memory_format=torch.channels_last_3d)


def test_other_strides_become_row_major(topology):
    tensor = counting((5, 2)).to(topology.device(0)).t()
    result = torch._C._gather([tensor, tensor], 0, -1)
    assert result.is_contiguous()
    assert torch.equal(result, torch.cat([tensor, tensor]).cpu())


@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.float32, torch.int64), (torch.int32, torch.float32), (torch.float16, torch.float64)],
    ids=str,
)
def test_the_first_chunk_decides_the_dtype(topology, first, second):
    tensors = [
        torch.tensor([1, 2]).to(topology.device(0), first),
        torch.tensor([2.75]).to(topology.device(1), second),
    ]
    result = torch._C._gather(tensors, 0, -1)
    assert result.dtype == first
    assert torch.equal(result[2:], torch.tensor([2.75]).to(second).to(first))


def test_chunks_of_length_zero_are_joined(topology):
    result = torch._C._gather(chunks(topology, (0, 5), (2, 5), (0, 5)), 0, -1)
    assert torch.equal(result, counting((2, 5)))


def test_an_empty_vector_is_no_exception_among_matrices(topology):
    with pytest.raises(RuntimeError, match="to have the same number of dimensions"):
        torch._C._gather(chunks(topology, (2, 5), (0,)), 0, -1)


@either
def test_a_chunk_that_requires_grad_is_refused_in_grad_mode(topology, gather):
    tensors = chunks(topology, (2, 5), (2, 5))
    tensors[1].requires_grad_()
    with pytest.raises(RuntimeError, match="returns multiple views"):
        gather(tensors, 0)


@either
def test_without_grad_mode_the_result_has_no_graph(topology, gather):
    tensors = [tensor.requires_grad_() for tensor in chunks(topology, (2, 5), (2, 5))]
    with torch.no_grad():
        assert not gather(tensors, 0).requires_grad


def test_sparse_tensors_are_refused(topology):
    sparse = torch.eye(2).to_sparse().to(topology.device(0))
    with pytest.raises(NotImplementedError, match="aten::as_strided"):
        torch._C._gather([sparse, sparse], 0, -1)


def test_an_out_of_the_wrong_shape_is_refused(topology):
    with pytest.raises(RuntimeError) as caught:
        torch._C._gather_out(chunks(topology, (2, 5), (2, 5)), torch.empty(3, 5), 0)
    assert "Expected out tensor to have shape [4, 5], but got [3, 5]" in str(caught.value)


@pytest.mark.parametrize("slot", [None, 0, 1], ids=["cpu", "first", "second"])
def test_out_comes_back_itself_on_any_device(topology, slot):
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
def test_the_version_of_out_rises_by_one_a_chunk(topology, count):
    out = torch.empty(2 * count, 5)
    before = out._version
    torch._C._gather_out(chunks(topology, *[(2, 5)] * count), out, 0)
    assert out._version == before + count


def test_a_leaf_out_that_requires_grad_is_refused(topology):
    out = torch.empty(4, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        torch._C._gather_out(chunks(topology, (2, 5), (2, 5)), out, 0)
