"""impl._buckets, impl._sums: tensors of a bucket share a storage, and are aligned."""

import pytest
import torch
from torch import nn

from impl import comm, replicate
from impl._bucket_copies import attached_copies
from impl_tests.helpers.alignment import DTYPES, FLOATS, misaligned, ones

#: The number of tensors in each test.
TENSORS = 6
counts = pytest.mark.parametrize("per_buffer", [1, 2, 3, 6], ids="per_buffer={}".format)


def make_tensors(device):
    return [torch.ones(4, device=device) for _ in range(TENSORS)]


def storage_count(tensors):
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors})


class ParametersAndBuffers(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.weights = nn.ParameterList(make_tensors(device))
        for index, tensor in enumerate(make_tensors(device)):
            self.register_buffer(f"buffer{index}", tensor)


@counts
def test_coalesced_copies_of_one_bucket_share_a_storage(topology, per_buffer):
    tensors = make_tensors(topology.device(0))
    size = per_buffer * tensors[0].nbytes
    _, copies = comm.broadcast_coalesced(tensors, topology.take(2), size)
    assert storage_count(copies) == TENSORS // per_buffer


@counts
def test_sums_of_one_bucket_share_a_storage(topology, per_buffer):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    rows = make_tensors(first), make_tensors(second)
    sums = comm.reduce_add_coalesced(rows, first, per_buffer * rows[0][0].nbytes)
    assert storage_count(sums) == TENSORS // per_buffer


@counts
@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
def test_tensors_of_one_bucket_share_a_storage_in_a_replica(topology, per_buffer, detach):
    module = ParametersAndBuffers(topology.device(0))
    size = per_buffer * module.buffer0.nbytes
    _, replica = replicate(module, topology.take(2), detach, buffer_size=size)
    assert storage_count(replica.weights) == TENSORS // per_buffer
    assert storage_count([*replica.buffers()]) == TENSORS // per_buffer


def test_default_bucket_of_a_replica_holds_2_mib(topology):
    module = nn.Module()
    for index, size in enumerate([2**18] * 8 + [1]):
        tensor = torch.zeros(size, dtype=torch.uint8, device=topology.device(0))
        module.register_buffer(f"buffer{index}", tensor)
    _, replica = replicate(module, topology.take(2))
    addresses = [each.untyped_storage().data_ptr() for each in replica.buffers()]
    assert addresses.count(addresses[0]) == 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("buffer_size", [0, 64, 2**20], ids="{}B".format)
def test_coalesced_copies_are_aligned(topology, dtype, buffer_size):
    tensors = ones(topology.device(0), dtype)
    for row in comm.broadcast_coalesced(tensors, topology.take([0, 1, 1, 0]), buffer_size)[1:]:
        assert misaligned(row) == []


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
