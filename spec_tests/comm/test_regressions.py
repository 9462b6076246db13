"""Regressions of comm in earlier PyTorch releases."""

import pytest
import torch

from spec_tests.harness.conformance.clauses import clause


@clause("comm.broadcast-coalesced.any-dtype")
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.uint8, torch.bfloat16], ids=str)
def test_buffers_with_rare_dtypes_are_copied(target, topology, dtype):
    # PyTorch 1.5: a bool buffer raised "Unconvertible NCCL type" (#40978).
    topology.require_copies()
    tensors = [torch.ones(3, device=topology.device(0)), torch.tensor([0, 1, 1]).to(dtype)]
    tensors[1] = tensors[1].to(topology.device(0))
    *_, (_, copy) = target.comm.broadcast_coalesced(tensors, topology.take(2))
    assert (copy.dtype, copy.tolist()) == (dtype, tensors[1].tolist())


@clause("comm.reduce-add.sum")
@pytest.mark.parametrize("count", [2, 3, 4], ids="devices={}".format)
def test_sum_of_large_tensors_is_not_zero(target, topology, count):
    # PyTorch 0.2: on some machines the sum was zero (#2573).
    ones = [torch.ones(2**18, device=device) for device in topology.take(count)]
    total = target.comm.reduce_add(ones, topology.device(0))
    assert total.unique().tolist() == [count]
    assert [tensor.unique().tolist() for tensor in ones] == [[1.0]] * count
