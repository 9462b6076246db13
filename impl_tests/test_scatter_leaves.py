"""impl._scatter_leaves: chunks of tensor subclasses with operators of their own."""

import torch
from torch.testing._internal.two_tensor import TwoTensor

from impl import scatter


def test_a_subclass_with_its_own_operators_is_split_into_the_given_sizes(topology):
    rows = torch.arange(8.0, device=topology.device(0)).reshape(4, 2)
    chunks = scatter(TwoTensor(rows, rows + 1), topology.take(2), chunk_sizes=[1, 3])
    assert [len(chunk) for chunk in chunks] == [1, 3]
    assert torch.equal(chunks[1].b.cpu(), rows[1:].cpu() + 1)
