"""``torch._C._broadcast_coalesced``: the stand-in, or the primitive of a CUDA build.

A bucket is a group of tensors that are copied together. On all devices but the first, the copies
of one bucket share a storage. The tests recognize the buckets by these storages.
"""

import pytest
import torch

from spec_tests.strategies.tensors import counting

BUFFER_SIZE = 1 << 20  # bytes


def broadcast(topology, tensors, limit=BUFFER_SIZE):
    """Broadcast to two different devices, and return the copies on the second device."""
    topology.require(distinct=2)
    devices = list(dict.fromkeys(topology.ordinals))[:2]
    moved = [tensor.to(topology.device(0)) for tensor in tensors]
    return torch._C._broadcast_coalesced(moved, devices, limit)[1]


def bucket_lengths(tensors):
    """Return for each storage, in order of first use, how many tensors share it."""
    parts = [tensor._values() if tensor.is_sparse else tensor for tensor in tensors]
    storages = [part.untyped_storage().data_ptr() for part in parts]
    return [storages.count(storage) for storage in dict.fromkeys(storages)]


def sparse(count):
    """Return a sparse vector of size 9 with ``count`` elements."""
    return torch.sparse_coo_tensor(
        torch.arange(count)[None], torch.ones(count), (9,), check_invariants=True
    )


def test_empty_list_of_tensors_returns_one_empty_list_per_device(topology):
    ordinal = topology.device(0).index
    assert torch._C._broadcast_coalesced([], [ordinal] * 3, BUFFER_SIZE) == [[], [], []]


def test_invalid_first_ordinal_raises_without_tensors(topology):
    with pytest.raises(RuntimeError):
        torch._C._broadcast_coalesced([], [torch.accelerator.device_count()], BUFFER_SIZE)


def test_copies_for_the_first_device_are_the_tensors_themselves(topology):
    tensors = [torch.nn.Parameter(counting((4,)).to(topology.device(0))) for _ in range(2)]
    tensors.append(tensors[0] * 2)
    graph = tensors[2].grad_fn
    results = torch._C._broadcast_coalesced(tensors, [topology.device(0).index] * 2, BUFFER_SIZE)
    assert all(result is tensor for result, tensor in zip(results[0], tensors, strict=True))
    assert tensors[2].grad_fn is graph


@pytest.mark.parametrize("make", [counting, lambda shape: sparse(4)], ids=["dense", "sparse"])
def test_copies_for_other_devices_are_plain_leaves(topology, make):
    tensors = [make((4,)).requires_grad_() for _ in range(2)]
    for result in broadcast(topology, tensors):
        assert type(result) is torch.Tensor
        assert (result.requires_grad, result._is_view(), result._version) == (False, False, 0)


def test_tensors_of_a_bucket_share_a_storage_but_no_version_counter(topology):
    results = broadcast(topology, [counting((4,)), counting((2, 2))])
    assert bucket_lengths(results) == [2]
    assert [result.storage_offset() for result in results] == [0, 4]
    results[0].zero_()
    assert [result._version for result in results] == [1, 0]
    assert torch.equal(results[1].cpu(), counting((2, 2)))


@pytest.mark.parametrize(
    "tensor",
    [counting((2, 3, 4, 5)).to(memory_format=torch.channels_last), counting((3, 4)).t()],
    ids=["channels-last", "transposed"],
)
@pytest.mark.parametrize("others", [0, 1], ids="other-tensors={}".format)
def test_copies_are_contiguous(topology, tensor, others):
    result = broadcast(topology, [tensor, *[counting((4,))] * others])[0]
    assert result.is_contiguous()
    assert torch.equal(result.cpu(), tensor)


@pytest.mark.parametrize(
    ("limit", "lengths"),
    [(16, [2, 2, 1]), (17, [3, 2]), (0, [1] * 5), (8, [1] * 5), (9, [2, 2, 1]), (1000, [5])],
    ids=lambda value: str(value),
)
def test_bucket_ends_with_the_tensor_that_reaches_the_limit(topology, limit, lengths):
    results = broadcast(topology, [counting((2,)) for _ in range(5)], limit)
    assert bucket_lengths(results) == lengths


@pytest.mark.parametrize(("limit", "lengths"), [(32, [1, 1]), (33, [2])], ids=str)
def test_each_sparse_value_counts_as_many_bytes_as_an_index(topology, limit, lengths):
    # Two elements have 2 indices and 2 values. Each index and each value counts as 8 bytes, 32 in
    # total, although a float32 value takes only 4 bytes.
    assert bucket_lengths(broadcast(topology, [sparse(2), sparse(2)], limit)) == lengths


def test_dtypes_and_layouts_use_separate_buckets_and_keep_their_order(topology):
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float16, torch.int64]
    tensors = [counting((2,), dtype) + 1 for dtype in dtypes]
    results = broadcast(topology, [*tensors, sparse(2), counting((2,)), sparse(1)])
    assert [result.dtype for result in results] == [*dtypes, *[torch.float32] * 3]
    assert [result.is_sparse for result in results[-3:]] == [True, False, True]
    assert bucket_lengths(results) == [3, 2, 1, 2]


@pytest.mark.parametrize("coalesced", [True, False], ids="coalesced={}".format)
def test_copies_are_coalesced_if_the_tensors_are(topology, coalesced):
    tensor = torch.sparse_coo_tensor(
        [[0, 1]], [1.0, 2.0], (9,), is_coalesced=coalesced, check_invariants=False
    )
    results = broadcast(topology, [tensor, tensor])
    assert [result.is_coalesced() for result in results] == [coalesced] * 2
    assert torch.equal(results[1].to_dense().cpu(), tensor.to_dense())


@pytest.mark.parametrize("shape", [(0,), (0, 16), (3, 0, 8)], ids=str)
@pytest.mark.parametrize("limit", [0, BUFFER_SIZE], ids="limit={}".format)
def test_empty_tensors_keep_their_shape_and_have_their_own_storage(topology, shape, limit):
    results = broadcast(topology, [counting((4,)), counting(shape), counting((4,))], limit)
    assert results[1].shape == shape
    assert results[1].untyped_storage().nbytes() == 0


@pytest.mark.parametrize(
    ("shapes", "limit", "is_shared"),
    [([(4,)], BUFFER_SIZE, True), ([(4,)] * 2, 0, True), ([(4,)] * 2, BUFFER_SIZE, False)],
    ids=["one", "limit=0", "two"],
)
def test_repeated_device_shares_the_memory_of_a_bucket_of_one(topology, shapes, limit, is_shared):
    tensors = [counting(shape).to(topology.device(0)) for shape in shapes]
    ordinal = topology.device(0).index
    results = torch._C._broadcast_coalesced(tensors, [ordinal] * 2, limit)[1]
    pairs = zip(results, tensors, strict=True)
    assert {result.data_ptr() == tensor.data_ptr() for result, tensor in pairs} == {is_shared}
    results[0].zero_()
    assert (tensors[0]._version, results[0]._version) == (0, 1)


def test_noncontiguous_bucket_of_one_is_copied(topology):
    columns = counting((3, 4)).to(topology.device(0)).t()
    ordinal = topology.device(0).index
    (result,) = torch._C._broadcast_coalesced([columns], [ordinal] * 2, BUFFER_SIZE)[1]
    assert result.data_ptr() != columns.data_ptr()
