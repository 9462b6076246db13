"""impl._comm.buckets: which tensors travel together, packed into one and unpacked again."""

import pytest
import torch

from impl._comm.buckets import (
    DEFAULT_BUFFER_SIZE,
    REPLICA_BUFFER_SIZE,
    pack,
    plan_buckets,
    sizes_in_bytes,
    sorted_by_index,
    unpack,
)

MIB = 2**20


def floats(*counts):
    return [torch.arange(float(count)) for count in counts]


def test_buckets_are_of_so_many_bytes_by_default():
    assert (DEFAULT_BUFFER_SIZE / MIB, REPLICA_BUFFER_SIZE / MIB) == (10, 2)


@pytest.mark.parametrize(
    ("counts", "size", "expected"),
    [
        ([1, 1, 1, 1], 8, [[0, 1], [2, 3]]),
        ([1, 1, 1, 1, 1], 11, [[0, 1], [2, 3], [4]]),
        ([2, 3, 1], 12, [[0], [1], [2]]),
        ([3, 3, 1], 16, [[0], [1, 2]]),
        ([1, 5, 1], 8, [[0], [1], [2]]),
        ([5, 1, 1], 8, [[0], [1, 2]]),
        ([0, 5, 0], 8, [[0, 1], [2]]),
        ([1, 0, 5], 8, [[0, 1], [2]]),
        ([1, 1], 0, [[0], [1]]),
        ([1, 1, 1], 1, [[0], [1], [2]]),
        ([], 8, []),
    ],
    ids=str,
)
def test_a_tensor_that_would_exceed_a_bucket_opens_the_next(counts, size, expected):
    assert plan_buckets(floats(*counts), size) == expected


def test_kinds_fill_buckets_of_their_own():
    double = torch.ones(1, dtype=torch.float64)
    others = [torch.eye(1).to_sparse(), double, torch.ones(1, device="meta")]
    tensors = [*floats(1, 1), double, *floats(1), *others]
    assert plan_buckets(tensors, 8) == [[0, 1], [2], [3], [5], [4], [6]]


@pytest.mark.parametrize(
    ("by_grad", "expected"), [(True, [[0, 2], [1, 3]]), (False, [[0, 1, 2, 3]])]
)
def test_what_requires_grad_is_parted_if_wanted(by_grad, expected):
    tensors = floats(1, 1, 1, 1)
    tensors[1].requires_grad_()
    tensors[3].requires_grad_()
    assert plan_buckets(tensors, 99, by_grad=by_grad) == expected


def test_by_default_it_is_not_parted():
    tensors = floats(1, 1)
    tensors[1].requires_grad_()
    assert plan_buckets(tensors, 99) == [[0, 1]]


def test_sizes_count_what_is_stored():
    sparse = torch.eye(3).to_sparse()
    dense = [torch.ones(3), torch.ones(2, dtype=torch.float64), torch.ones(0)]
    assert sizes_in_bytes([*dense, sparse]) == [12, 16, 0, 2 * 3 * 8 + 3 * 4]


@pytest.mark.parametrize("indices", [[0, 1, 2], [2, 0, 1], [1, 0, 2]], ids=str)
def test_rows_are_sorted_by_index(indices):
    one, other = ([row * 10 + index for index in indices] for row in (1, 2))
    assert sorted_by_index([one, tuple(other)], indices) == [[10, 11, 12], [20, 21, 22]]


def test_a_row_of_one_stays_a_list():
    assert sorted_by_index([(5,)], [0]) == [[5]]
    assert sorted_by_index([(), ()], []) == [[], []]


SHAPES = [(2, 3), (2, 3), (), (), (0, 4), (0, 4), (1,), (3,), (16,)]
spacings = pytest.mark.parametrize("spacing", [1, 8], ids="spacing={}".format)


def unpacked(spacing, *, requires_grad=False):
    tensors = [1 + torch.rand(shape, dtype=torch.float64) for shape in SHAPES]
    flat = pack([tensor.requires_grad_(requires_grad) for tensor in tensors], spacing)
    return tensors, flat, unpack(flat, [tensor.shape for tensor in tensors], spacing)


@spacings
def test_what_was_packed_is_unpacked(spacing):
    tensors, _, pieces = unpacked(spacing)
    for tensor, piece in zip(tensors, pieces, strict=True):
        assert piece.shape == tensor.shape
        assert piece.is_contiguous()
        assert torch.equal(piece, tensor)


def test_tensors_begin_at_multiples_of_the_spacing():
    _, flat, pieces = unpacked(8)
    assert [piece.storage_offset() for piece in pieces] == [0, 8, 16, 24, 0, 0, 32, 40, 48]
    assert flat.shape == (64,)
    assert flat.count_nonzero() == sum(piece.numel() for piece in pieces)


@pytest.mark.parametrize(
    ("counts", "size"), [([3], 3), ([3, 3], 11), ([8, 8], 16), ([3, 0], 8), ([0, 3], 3), ([0], 0)]
)
def test_no_gap_follows_the_last_tensor(counts, size):
    tensors = floats(*counts)
    flat = pack(tensors, 8)
    assert flat.shape == (size,)
    assert list(map(len, unpack(flat, [each.shape for each in tensors], 8))) == counts


@pytest.mark.parametrize("spacing", [1, 2, 64])
def test_a_single_tensor_is_packed_without_a_copy(spacing):
    tensor = torch.ones(2, 3)
    assert pack([tensor], spacing).data_ptr() == tensor.data_ptr()


@spacings
def test_pieces_share_memory_and_no_version_counter(spacing):
    _, flat, pieces = unpacked(spacing)
    for piece in pieces:
        piece.fill_(7)
    assert (flat == 7).sum() == sum(piece.numel() for piece in pieces)
    assert [piece._version for piece in pieces] == [1] * len(SHAPES)
    assert flat._version == 0


@spacings
def test_an_empty_piece_has_memory_of_its_own(spacing):
    _, flat, pieces = unpacked(spacing)
    owners = {piece.untyped_storage()._cdata for piece in (flat, pieces[4], pieces[5])}
    assert len(owners) == 3


@spacings
@pytest.mark.parametrize("requires_grad", [False, True])
def test_pieces_are_no_views(spacing, requires_grad):
    _, _, pieces = unpacked(spacing, requires_grad=requires_grad)
    assert not any(piece._is_view() for piece in pieces)


@spacings
def test_gradients_flow_through(spacing):
    tensors, _, pieces = unpacked(spacing, requires_grad=True)
    filled = [index for index, tensor in enumerate(tensors) if tensor.numel()]
    outputs = [pieces[index] for index in filled]
    inputs = [tensors[index] for index in filled]
    grads = torch.autograd.grad(outputs, inputs, [3 * piece for piece in outputs])
    for tensor, grad in zip(inputs, grads, strict=True):
        torch.testing.assert_close(grad, 3 * tensor)


@spacings
def test_gradients_flow_through_pieces_that_have_changed(spacing):
    tensors, _, pieces = unpacked(spacing, requires_grad=True)
    pieces[0].mul_(2)
    grads = torch.autograd.grad([pieces[0].sum(), pieces[1].sum()], tensors[:2])
    assert [grad.unique().tolist() for grad in grads] == [[2.0], [1.0]]


@pytest.mark.parametrize("spacing", [1, 2])
def test_a_flat_tensor_that_the_shapes_do_not_fill_is_refused(spacing):
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        unpack(torch.ones(3), [torch.Size([2])], spacing)
