"""impl._sums: sums have the same alignment in memory as new tensors."""

import pytest
import torch

from impl import comm
from impl._bucket_copies import attached_copies
from impl_tests.helpers.alignment import DTYPES, FLOATS, misaligned, ones


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("create_graph", [False, True], ids="create_graph={}".format)
def test_gradients_of_copies_are_aligned(topology, dtype, create_graph):
    sources = [each.requires_grad_() for each in ones(topology.device(0), dtype)]
    rows = attached_copies(sources, topology.take(3))
    copies = [copy for row in rows for copy in row]
    weights = [copy.detach().requires_grad_(create_graph) for copy in copies]
    grads = torch.autograd.grad(copies, sources, weights, create_graph=create_graph)
    assert misaligned(grads) == []
    assert all(torch.equal(grad, torch.full_like(grad, 3)) for grad in grads)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("slots", [(0, 1), (0, 1, 1), (0, 0)], ids=str)
def test_coalesced_sums_are_aligned(topology, dtype, slots):
    lists = [ones(device, dtype) for device in topology.take(slots)]
    assert misaligned(comm.reduce_add_coalesced(lists, lists[0][0].device)) == []


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [([(2, 3), (1,), (2,)], torch.float64), ([(3, 2), (2,), (1,)], torch.float32)],
    ids=["dtypes", "shapes"],
)
def test_sums_of_lists_with_different_dtypes_or_shapes_are_aligned(topology, shapes, dtype):
    first = ones(topology.device(0), shapes=[(2, 3), (1,), (2,)])
    second = ones(topology.device(1), dtype, shapes)
    sums = comm.reduce_add_coalesced([first, second], topology.device(0))
    assert misaligned(sums) == []
    assert [total.unique().tolist() for total in sums] == [[2.0]] * 3
