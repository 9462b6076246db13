"""impl.comm: what its arguments may be."""

import torch

from impl import comm


def test_tensors_to_broadcast_may_come_one_by_one(topology):
    tensors = [torch.tensor([float(index)], device=topology.device(0)) for index in range(3)]
    rows = comm.broadcast_coalesced(iter(tensors), topology.take(2))
    assert [[tensor.item() for tensor in row] for row in rows] == [[0, 1, 2]] * 2


def test_tensors_to_gather_may_come_one_by_one(topology):
    tensors = [torch.tensor([float(index)], device=topology.device(index)) for index in range(3)]
    assert comm.gather(iter(tensors)).tolist() == [0, 1, 2]
