"""``torch._C._scatter``: the stand-in, or the primitive of a CUDA build."""

import pytest
import torch

from spec_tests.strategies.calls import StreamAt
from spec_tests.strategies.tensors import counting


def ordinals(topology, count):
    return [device.index for device in topology.take(count)]


def scatter(tensor, devices, chunk_sizes=None, dim=0, streams=None):
    return torch._C._scatter(tensor, devices, chunk_sizes, dim, streams)


@pytest.mark.parametrize(
    ("devices", "chunk_sizes", "dim", "shape", "error", "text"),
    [
        ([], None, 0, (6,), RuntimeError, "Expected at least one device to scatter to"),
        (
            [0, 0, 0],
            [1, 2],
            0,
            (6,),
            RuntimeError,
            "Expected devices and chunk_sizes to be of same length, "
            "but got len(devices) = 3 and len(chunk_sizes) = 2",
        ),
        (
            [0],
            None,
            2,
            (4, 6),
            IndexError,
            "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
        ),
        (
            [0],
            [1],
            1,
            (),
            IndexError,
            "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        ),
        ([0], None, -1, (), RuntimeError, "chunk expects at least a 1-dimensional tensor"),
        ([0], [1], 0, (), RuntimeError, "split expects at least a 1-dimensional tensor"),
        (
            [0, 0],
            [-1, 7],
            0,
            (6,),
            RuntimeError,
            "split_with_sizes expects split_sizes have only non-negative entries, "
            "but got split_sizes=[-1, 7]",
        ),
        (
            [0, 0],
            [2, 2],
            -2,
            (6, 4),
            RuntimeError,
            "split_with_sizes expects split_sizes to sum exactly to 6 "
            "(input tensor's size at dimension 0), but got split_sizes=[2, 2]",
        ),
        ([-1], None, 0, "device", RuntimeError, "Expected non-negative device index, but got -1"),
    ],
    ids=[
        "no-device",
        "lengths",
        "dim",
        "dim-of-scalar",
        "scalar-chunk",
        "scalar-split",
        "negative-size",
        "wrong-total",
        "negative-ordinal",
    ],
)
def test_invalid_arguments_raise(topology, devices, chunk_sizes, dim, shape, error, text):
    tensor = counting((6,)).to(topology.device(0)) if shape == "device" else counting(shape)
    with pytest.raises(error) as caught:
        scatter(tensor, devices, chunk_sizes, dim)
    assert text in str(caught.value)


def test_lengths_are_checked_before_dim(topology):
    with pytest.raises(RuntimeError, match="to be of same length"):
        scatter(counting((4, 6)), ordinals(topology, 1), [1, 2], 7)


def test_stream_of_another_device_raises(topology):
    topology.require(distinct=2)
    streams = [None, StreamAt(0).build(topology)]
    with pytest.raises(RuntimeError) as caught:
        scatter(counting((4, 6)), ordinals(topology, 2), None, 0, streams)
    # The ordinal is printed as a character, and the character 0 ends the text.
    assert str(caught.value).startswith(
        "Expected the device associated with the stream at index 1 (was "
    )


def test_error_for_a_stream_contains_the_ordinal_of_the_chunk(topology):
    topology.require(distinct=2)
    streams = [StreamAt(1).build(topology)]
    with pytest.raises(RuntimeError) as caught:
        scatter(counting((4, 6)), ordinals(topology, 1), None, 0, streams)
    end = f"to match the device supplied at that index (expected {topology.device(0).index})"
    assert end in str(caught.value)


def test_streams_and_ordinals_are_not_checked_for_chunks_that_stay_on_their_device(topology):
    topology.require(distinct=2)
    tensor = counting((4, 6)).to(topology.device(0))
    (chunk,) = scatter(tensor, ordinals(topology, 1), None, 0, [StreamAt(1).build(topology)])
    assert chunk.data_ptr() == tensor.data_ptr()
    (cpu,) = scatter(counting((4, 6)), [-1], None, 0, None)
    assert cpu.device == torch.device("cpu")


def test_zero_length_chunks_are_allowed(topology):
    chunks = scatter(counting((4, 6)), ordinals(topology, 3), [0, 4, 0])
    assert [tuple(chunk.shape) for chunk in chunks] == [(0, 6), (4, 6), (0, 6)]


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [(5, [2, 2, 1]), (6, [2, 2, 2]), (3, [1, 1, 1]), (8, [2, 2, 2, 2]), (0, [0, 0, 0, 0])],
    ids=lambda value: str(value),
)
def test_chunk_lengths_are_those_of_torch_chunk(topology, rows, lengths):
    chunks = scatter(counting((rows, 2)), ordinals(topology, 4))
    assert [chunk.size(0) for chunk in chunks] == lengths
    assert torch.equal(torch.cat([chunk.cpu() for chunk in chunks]), counting((rows, 2)))
    devices = topology.take(len(lengths))
    assert [chunk.device for chunk in chunks] == devices


def test_surplus_devices_are_not_validated(topology):
    devices = [*ordinals(topology, 1), topology.device(0).index, -1, -1]
    assert len(scatter(counting((2, 2)), devices)) == 2


def test_negative_dim_counts_from_the_last(topology):
    chunks = scatter(counting((4, 6)), ordinals(topology, 2), [2, 4], -1)
    assert torch.equal(torch.cat([chunk.cpu() for chunk in chunks], 1), counting((4, 6)))
    assert chunks[0].size(1) == 2


def test_chunk_on_the_same_device_is_a_view_of_the_input(topology):
    base = counting((6, 4)).to(topology.device(0))
    tensor = base.t()
    chunks = scatter(tensor, [topology.device(0).index] * 2)
    assert [chunk.data_ptr() for chunk in chunks] == [part.data_ptr() for part in tensor.chunk(2)]
    assert all(chunk.stride() == tensor.stride() for chunk in chunks)
    chunks[1].zero_()
    assert base[:, 2:].sum() == 0
    assert chunks[0]._version == tensor._version == 1


@pytest.mark.parametrize(
    "tensor",
    [
        counting((6, 4)).t(),
        counting((4, 6))[:, ::2],
        counting((1, 6)).expand(4, 6),
        counting((4, 3, 5, 5)).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels-last"],
)
def test_copied_chunk_preserves_memory_format(topology, tensor):
    chunks = scatter(tensor, ordinals(topology, 2))
    # `empty_like` computes strides by the rule of torch.preserve_format.
    expected = [torch.empty_like(part).stride() for part in tensor.chunk(2)]
    assert [chunk.stride() for chunk in chunks] == expected
    assert torch.equal(torch.cat([chunk.cpu() for chunk in chunks]), tensor)


def test_a_copied_chunk_with_gaps_or_overlaps_has_dense_strides(topology):
    (chunk, _) = scatter(counting((6, 4)).t(), ordinals(topology, 2), [2, 2])
    assert chunk.stride() == (1, 2)
    (chunk, _) = scatter(counting((4, 6)).t(), ordinals(topology, 2), [3, 3])
    assert chunk.stride() == (1, 3)
    (chunk, _) = scatter(counting((1, 3)).expand(4, 3), ordinals(topology, 2), [2, 2])
    assert chunk.stride() == (3, 1)


@pytest.mark.parametrize("dtype", [torch.int16, torch.bool, torch.complex64], ids=str)
def test_chunks_keep_the_dtype(topology, dtype):
    chunks = scatter(counting((4, 6), dtype), ordinals(topology, 2))
    assert [chunk.dtype for chunk in chunks] == [dtype, dtype]


def test_copied_chunks_are_differentiable(topology):
    tensor = counting((4,)).requires_grad_()
    chunks = scatter(tensor, ordinals(topology, 2))
    assert type(chunks[0].grad_fn).__name__ == "ToCopyBackward0"
    (2 * chunks[0].sum() + 3 * chunks[1].cpu().sum()).cpu().backward()
    assert tensor.grad.tolist() == [2, 2, 3, 3]


def test_chunks_on_the_same_device_are_differentiable_views(topology):
    tensor = counting((4,)).to(topology.device(0)).requires_grad_()
    chunks = scatter(tensor, [topology.device(0).index] * 2)
    assert type(chunks[0].grad_fn).__name__ == "SplitBackward0"
    with pytest.raises(RuntimeError, match="returns multiple views"):
        chunks[0].mul_(2)


def test_sparse_tensors_raise(topology):
    with pytest.raises(NotImplementedError, match="aten::as_strided"):
        scatter(torch.eye(4).to_sparse(), ordinals(topology, 2))


def test_streams_must_be_a_sequence(topology):
    with pytest.raises(RuntimeError, match="Expected a sequence in THPUtils_PySequence_to_CUDA"):
        scatter(counting((4, 6)), ordinals(topology, 1), None, 0, 3)


def test_streams_must_be_streams_or_none(topology):
    text = rf"Unknown data type found in stream list. Need torch.{topology.accelerator}.Stream"
    with pytest.raises(RuntimeError, match=text):
        scatter(counting((4, 6)), ordinals(topology, 1), None, 0, [3])


@pytest.mark.parametrize("beyond", [1 << 16, 1 << 8], ids=["16-bits", "8-bits"])
def test_ordinals_are_truncated_to_8_bits(topology, beyond):
    device = topology.device(0)
    (chunk,) = scatter(counting((4, 6)), [device.index + beyond])
    assert chunk.device == device
