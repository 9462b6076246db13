"""Sparse tensors through ``torch._C._broadcast_coalesced``."""

import pytest
import torch

BUFFER_SIZE = 1 << 20  # bytes


def sparse(count, *, coalesced=True):
    """Return a sparse vector of size 9 with ``count`` elements."""
    return torch.sparse_coo_tensor(
        torch.arange(count)[None],
        torch.ones(count),
        (9,),
        is_coalesced=coalesced,
        check_invariants=False,
    )


def broadcast(topology, tensors, limit=BUFFER_SIZE):
    tensors = [tensor.to(topology.device(0)) for tensor in tensors]
    devices = [topology.device(slot).index for slot in (0, 1)]
    return torch._C._broadcast_coalesced(tensors, devices, limit)[1]


def value_storages(tensors):
    return len({tensor._values().untyped_storage().data_ptr() for tensor in tensors})


@pytest.mark.parametrize("coalesced", [True, False], ids="coalesced={}".format)
def test_copies_are_coalesced_if_the_tensors_are(topology, coalesced):
    tensors = [sparse(2, coalesced=coalesced), sparse(3, coalesced=coalesced)]
    results = broadcast(topology, tensors)
    assert [result.is_coalesced() for result in results] == [coalesced] * 2
    for result, tensor in zip(results, tensors, strict=True):
        assert torch.equal(result.to_dense().cpu(), tensor.to_dense())


def test_sparse_and_dense_use_separate_buckets_and_keep_their_order(topology):
    tensors = [sparse(2), torch.ones(3), sparse(1), torch.ones(2)]
    results = broadcast(topology, tensors)
    assert [result.is_sparse for result in results] == [True, False, True, False]
    assert value_storages([results[0], results[2]]) == 1


def test_copies_are_plain_leaves(topology):
    for result in broadcast(topology, [sparse(2), sparse(3)]):
        assert type(result) is torch.Tensor
        assert result.is_leaf
        assert result._version == 0


@pytest.mark.parametrize(
    ("limit", "storages"),
    [(32, 2), (33, 1)],
    ids=["one-tensor-per-bucket", "two-tensors-per-bucket"],
)
def test_each_sparse_value_counts_as_many_bytes_as_an_index(topology, limit, storages):
    # Two elements have 2 indices and 2 values. Each index and each value counts as 8 bytes, 32 in
    # total, although a float32 value takes only 4 bytes.
    results = broadcast(topology, [sparse(2), sparse(2)], limit)
    assert value_storages(results) == storages
