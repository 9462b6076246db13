"""The stand-ins: buckets, undefined calls, and ``enable``.

``tox -e cuda-build`` compares errors and facts about tensors with the functions of a CUDA build.
The chapter `comm` compares torch.nn.parallel, which calls the stand-ins, with the oracle.
"""

import pytest
import torch
import torch.nn.parallel

from spec_tests import cuda_stand_ins
from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.tensors import counting

BUFFER_SIZE = 1 << 20  # bytes


def test_gather_to_an_ordinal_below_minus_one_is_refused(topology):
    # It ends the process of a CUDA build.
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        STAND_INS["_gather"]([counting((2, 5)).to(topology.device(0))], 0, -2)


@pytest.mark.parametrize(
    ("limit", "lengths"), [(16, [2, 2, 1]), (17, [3, 2]), (0, [1] * 5), (1000, [5])], ids=str
)
def test_a_bucket_ends_with_the_tensor_that_reaches_the_limit(topology, limit, lengths):
    results = _broadcast(topology, [counting((2,)) for _ in range(5)], limit)
    assert _bucket_lengths(results) == lengths


@pytest.mark.parametrize(("limit", "lengths"), [(32, [1, 1]), (33, [2])], ids=str)
def test_each_sparse_value_counts_as_many_bytes_as_an_index(topology, limit, lengths):
    # Two elements have 2 indices and 2 values. Each index and each value counts as 8 bytes, 32 in
    # total, although a float32 value takes only 4 bytes.
    tensors = [torch.ones(2).to_sparse() for _ in range(2)]
    assert _bucket_lengths(_broadcast(topology, tensors, limit)) == lengths


def test_dtypes_and_layouts_use_separate_buckets_and_keep_their_order(topology):
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float16, torch.int64]
    tensors = [counting((2,), dtype) + 1 for dtype in dtypes]
    sparse = torch.eye(2).to_sparse()
    results = _broadcast(topology, [*tensors, sparse, counting((2,)), sparse], BUFFER_SIZE)
    assert [result.dtype for result in results] == [*dtypes, *[torch.float32] * 3]
    assert [result.is_sparse for result in results[-3:]] == [True, False, True]
    assert _bucket_lengths(results) == [3, 2, 1, 2]


def _broadcast(topology, tensors, limit):
    """Broadcast to two different devices, and return the copies on the second device."""
    topology.require(distinct=2)
    devices = list(dict.fromkeys(topology.ordinals))[:2]
    moved = [tensor.to(topology.device(0)) for tensor in tensors]
    return STAND_INS["_broadcast_coalesced"](moved, devices, limit)[1]


def _bucket_lengths(tensors):
    """Return for each storage, in order of first use, how many tensors share it."""
    parts = [tensor._values() if tensor.is_sparse else tensor for tensor in tensors]
    storages = [part.untyped_storage().data_ptr() for part in parts]
    return [storages.count(storage) for storage in dict.fromkeys(storages)]


@pytest.mark.parametrize(
    ("version", "accelerator", "is_kept"),
    [(None, "sim", True), ("13.2", "cuda", True), ("13.2", "sim", False)],
)
def test_enable_replaces_only_primitives_of_a_cuda_build_on_another_accelerator(
    topology, monkeypatch, version, accelerator, is_kept
):
    for name, stand_in in STAND_INS.items():
        monkeypatch.setattr(torch._C, name, stand_in)
    monkeypatch.setattr(torch._C, "_gather", print)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(cuda_stand_ins, "accelerator_type", lambda: accelerator)
    monkeypatch.setattr(cuda_stand_ins, "accept_this_accelerator", lambda: None)
    cuda_stand_ins.enable()
    assert torch._C._gather is (print if is_kept else STAND_INS["_gather"])


def test_a_stand_in_without_an_accelerator_raises(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    with pytest.raises(RuntimeError, match="no accelerator: enable the simulator"):
        STAND_INS["_gather"]([torch.ones(2)], 0, 0)
