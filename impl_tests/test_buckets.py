"""impl._buckets: the assignment of tensors to buckets, and packing into flat tensors."""

import pytest
import torch

from impl._buckets import pack, plan_buckets, sizes_in_bytes, unpack


def floats(*counts):
    return [torch.arange(float(count)) for count in counts]


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
def test_a_bucket_is_closed_if_the_next_tensor_would_exceed_its_size(counts, size, expected):
    assert plan_buckets(floats(*counts), size) == expected


def test_each_dtype_layout_and_device_has_its_own_buckets():
    double = torch.ones(1, dtype=torch.float64)
    others = [torch.eye(1).to_sparse(), double, torch.ones(1, device="meta")]
    tensors = [*floats(1, 1), double, *floats(1), *others]
    assert plan_buckets(tensors, 8) == [[0, 1], [2], [3], [5], [4], [6]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"by_grad": True}, [[0, 2], [1, 3]]),
        ({"by_grad": False}, [[0, 1, 2, 3]]),
        ({}, [[0, 1, 2, 3]]),
    ],
    ids=str,
)
def test_by_grad_separates_tensors_that_require_grad(options, expected):
    tensors = floats(1, 1, 1, 1)
    tensors[1].requires_grad_()
    tensors[3].requires_grad_()
    assert plan_buckets(tensors, 99, **options) == expected


def test_sizes_include_the_indices_of_sparse_tensors():
    sparse = torch.eye(3).to_sparse()
    dense = [torch.ones(3), torch.ones(2, dtype=torch.float64), torch.ones(0)]
    assert sizes_in_bytes([*dense, sparse]) == [12, 16, 0, 2 * 3 * 8 + 3 * 4]


SHAPES = [(2, 3), (2, 3), (), (), (0, 4), (0, 4), (1,), (3,), (16,)]
SPACINGS = pytest.mark.parametrize("spacing", [1, 8], ids="spacing={}".format)


def pack_and_unpack(spacing, *, requires_grad=False):
    tensors = [1 + torch.rand(shape, dtype=torch.float64) for shape in SHAPES]
    flat = pack([tensor.requires_grad_(requires_grad) for tensor in tensors], spacing)
    return tensors, flat, unpack(flat, [tensor.shape for tensor in tensors], spacing)


def test_packed_tensors_begin_at_multiples_of_the_spacing():
    _, flat, pieces = pack_and_unpack(8)
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
    assert list(map(len, unpack(flat, [tensor.shape for tensor in tensors], 8))) == counts


@pytest.mark.parametrize("spacing", [1, 2, 64])
def test_packing_one_tensor_copies_nothing(spacing):
    tensor = torch.ones(2, 3)
    assert pack([tensor], spacing).data_ptr() == tensor.data_ptr()


@SPACINGS
def test_unpacked_tensors_share_memory_but_no_version_counter(spacing):
    _, flat, pieces = pack_and_unpack(spacing)
    for piece in pieces:
        piece.fill_(7)
    assert (flat == 7).sum() == sum(piece.numel() for piece in pieces)
    assert [piece._version for piece in pieces] == [1] * len(SHAPES)
    assert flat._version == 0
    assert not any(piece._is_view() for piece in pieces)


@SPACINGS
def test_empty_unpacked_tensors_have_their_own_storages(spacing):
    _, flat, pieces = pack_and_unpack(spacing)
    storages = {piece.untyped_storage()._cdata for piece in (flat, pieces[4], pieces[5])}
    assert len(storages) == 3


@SPACINGS
def test_gradients_pass_through_unpacked_tensors_that_change_in_place(spacing):
    tensors, _, pieces = pack_and_unpack(spacing, requires_grad=True)
    pieces[0].mul_(2)
    grads = torch.autograd.grad([pieces[0].sum(), pieces[1].sum()], tensors[:2])
    assert [grad.unique().tolist() for grad in grads] == [[2.0], [1.0]]
