"""Sparse tensors as buffers and parameters: RE-10."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.strategies.tensors import device_slots

BUFFERS_CLAUSE = clause("divergences.RE-10.compressed-buffers-are-copied")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
BLOCKS = {torch.sparse_bsr: (1, 2), torch.sparse_bsc: (1, 2)}
COMPRESSED = [torch.sparse_csr, torch.sparse_csc, *BLOCKS]
EVERY_LAYOUT = pytest.mark.parametrize("layout", [torch.sparse_coo, *COMPRESSED], ids=str)
EVERY_COMPRESSED_LAYOUT = pytest.mark.parametrize("layout", COMPRESSED, ids=str)


def sparse(topology, layout, rows):
    """Return a diagonal matrix of ``rows`` rows and four columns; 0 rows are allowed."""
    capabilities.require("sparse")
    matrix = torch.eye(rows, 4).to_sparse(layout=layout, blocksize=BLOCKS.get(layout))
    return matrix.to(topology.device(0))


class Graph(nn.Module):
    """A module that multiplies its input with a sparse matrix."""

    def __init__(self, matrix):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, device=matrix.device))
        self.register_buffer("matrix", matrix)

    def forward(self, x):
        return x @ self.matrix.to_dense() * self.weight


@BUFFERS_CLAUSE
@EVERY_COMPRESSED_LAYOUT
@given(slots=device_slots(), detach=st.booleans())
def test_compressed_buffers_are_copied(target, topology, layout, slots, detach):
    matrix = sparse(topology, layout, 4).to(topology.device(slots[0]))
    replicas = target.replicate.replicate(Graph(matrix), topology.take(slots), detach)
    found = [(replica.matrix.device, replica.matrix.layout) for replica in replicas]
    checks.same(found, [(device, layout) for device in topology.take(slots)])
    values = [replica.matrix.to_dense().tolist() for replica in replicas]
    checks.same(values, [matrix.to_dense().tolist()] * len(slots))


@BUFFERS_CLAUSE
@EVERY_COMPRESSED_LAYOUT
def test_modules_with_compressed_buffers_are_trained(target, topology, layout):
    module = Graph(sparse(topology, layout, 4))
    rows = torch.arange(16.0).to(topology.device(0)).reshape(4, 4)
    wrapper = target.data_parallel.DataParallel(module, topology.take((0, 1)))
    output = wrapper(rows)
    output.sum().backward()
    checks.same(output.tolist(), rows.tolist())
    checks.same(module.weight.grad.tolist(), rows.sum(0).tolist())


@clause("divergences.RE-10.sparse-parameters-are-refused-by-name")
@EVERY_LAYOUT
def test_a_sparse_parameter_that_requires_grad_is_refused_by_name(target, topology, layout):
    module = nn.Sequential(Graph(sparse(topology, layout, 4)))
    module[0].sparse_weight = nn.Parameter(sparse(topology, layout, 4))
    with pytest.raises(NotImplementedError) as caught:
        target.replicate.replicate(module, topology.take((0, 1)))
    checks.contains(caught.value, ["0.sparse_weight", f"{layout}"])
