"""impl.scatter_gather: tensor subclasses with their own operators, and sparse tensors."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from impl import Whole, scatter


def test_a_subclass_with_its_own_operators_is_split_into_the_given_sizes(topology):
    rows = torch.arange(8.0, device=topology.device(0)).reshape(4, 2)
    chunks = scatter(TwoTensor(rows, rows + 1), topology.take(2), chunk_sizes=[1, 3])
    assert [len(chunk) for chunk in chunks] == [1, 3]
    assert torch.equal(chunks[1].b.cpu(), rows[1:].cpu() + 1)


def test_dataclasses_that_contain_themselves_are_split(topology):
    from dataclasses import dataclass

    @dataclass
    class Batch:
        x: torch.Tensor
        whole: object = None

    batch = Batch(torch.arange(4.0, device=topology.device(0)))
    batch.whole = batch
    found = scatter((batch,), topology.take(2))
    assert [part.x.tolist() for (part,) in found] == [[0, 1], [2, 3]]
    assert found[0][0].whole is batch


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_the_split_of_a_sparse_tensor_is_refused_by_path_and_layout(topology):
    inputs = {"graph": torch.eye(4).to_sparse_csr()}
    with pytest.raises(
        NotImplementedError, match=r"inputs\['graph'\] .* torch.sparse_csr, .* Whole"
    ):
        scatter(inputs, topology.take(2))


def test_a_sparse_tensor_that_requires_grad_cannot_be_marked_whole(topology):
    graph = torch.eye(4).to_sparse().requires_grad_()
    with pytest.raises(NotImplementedError, match=r"shape \(4, 4\) requires grad .*sparse_coo"):
        scatter([Whole(graph)], topology.take(2))
    with torch.no_grad():
        assert len(scatter([Whole(graph)], topology.take(2))) == 2
