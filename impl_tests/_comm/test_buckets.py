"""impl._comm.buckets: which tensors travel together, packed into one and unpacked again."""

import pytest
import torch

from impl._comm.buckets import (
    DEFAULT_BUFFER_SIZE,
    REPLICA_BUFFER_SIZE,
    plan_buckets,
    sizes_in_bytes,
    sorted_by_index,
    unpack,
)
from impl._compat.torch_private import flatten

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


SHAPES = [(2, 3), (2, 3), (), (), (0, 4), (0, 4), (1,), (3,)]


def unpacked(*, requires_grad=False):
    tensors = [torch.rand(shape, dtype=torch.float64) for shape in SHAPES]
    flat = flatten([tensor.requires_grad_(requires_grad) for tensor in tensors])
    return tensors, flat, unpack(flat, [tensor.shape for tensor in tensors])


def test_what_was_packed_is_unpacked():
    tensors, _, pieces = unpacked()
    for tensor, piece in zip(tensors, pieces, strict=True):
        assert piece.shape == tensor.shape
        assert piece.is_contiguous()
        assert torch.equal(piece, tensor)


def test_a_single_tensor_is_packed_without_a_copy():
    tensor = torch.ones(2, 3)
    assert flatten([tensor]).data_ptr() == tensor.data_ptr()


def test_pieces_share_memory_and_no_version_counter():
    _, flat, pieces = unpacked()
    for piece in pieces:
        piece.fill_(7)
    assert flat.unique().tolist() == [7]
    assert [piece._version for piece in pieces] == [1] * len(SHAPES)


def test_an_empty_piece_has_memory_of_its_own():
    _, flat, pieces = unpacked()
    owners = {piece.untyped_storage()._cdata for piece in (flat, pieces[4], pieces[5])}
    assert len(owners) == 3


def test_scalars_are_no_views_where_no_gradient_flows():
    _, _, pieces = unpacked()
    assert not any(piece._is_view() for piece in pieces[2:4])


def test_gradients_flow_through():
    tensors, _, pieces = unpacked(requires_grad=True)
    grads = torch.autograd.grad(pieces[:4], tensors[:4], [3 * piece for piece in pieces[:4]])
    for tensor, grad in zip(tensors, grads, strict=False):
        torch.testing.assert_close(grad, 3 * tensor)


def test_a_flat_tensor_that_the_shapes_do_not_fill_is_refused():
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        unpack(torch.ones(3), [torch.Size([2])])
