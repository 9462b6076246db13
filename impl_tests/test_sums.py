"""impl: copies and sums have the same alignment in memory as new tensors."""

import pytest
import torch
from torch import nn

from impl import comm, replicate
from impl._bucket_copies import attached_copies
from impl._devices import CPU, alignment_on
from impl.distributed.serialization import (
    TensorMeta,
    copy_to_bytes,
    count_bytes,
    view_tensors,
)

#: Shapes of tensors that are mostly misaligned if they are stored without gaps.
SHAPES = [(3,), (), (5, 7), (0, 2), (), (2, 1, 3), (16,), (3,), (1,)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
OTHER_DTYPES = [torch.int8, torch.int32, torch.int64, torch.bool, torch.complex128]
floats = pytest.mark.parametrize("dtype", FLOATS, ids=str)
dtypes = pytest.mark.parametrize("dtype", FLOATS + OTHER_DTYPES, ids=str)


def ones(device, dtype=torch.float32, shapes=SHAPES):
    return [torch.ones(shape, dtype=dtype, device=device) for shape in shapes]


def misaligned(tensors):
    """Return the shapes of the non-empty tensors that are misaligned on their device."""
    return [
        tensor.shape
        for tensor in tensors
        if tensor.numel() and tensor.data_ptr() % alignment_on(tensor.device)
    ]


class MixedModule(nn.Module):
    """A module with parameters and buffers of several dtypes."""

    def __init__(self, device):
        super().__init__()
        for row, dtype in enumerate(FLOATS):
            for column, tensor in enumerate(ones(device, dtype)):
                self.register_parameter(f"parameter_{row}_{column}", nn.Parameter(tensor))
        for row, dtype in enumerate(OTHER_DTYPES):
            for column, tensor in enumerate(ones(device, dtype)):
                self.register_buffer(f"buffer_{row}_{column}", tensor)


@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
def test_parameters_and_buffers_of_replicas_are_aligned(topology, detach):
    replicas = replicate(MixedModule(topology.device(0)), topology.take(3), detach)
    for replica in replicas[1:]:
        copies = [*replica._former_parameters.values(), *replica._buffers.values()]
        assert len(copies) == len(SHAPES) * len(FLOATS + OTHER_DTYPES)
        assert misaligned(copies) == []


@dtypes
@pytest.mark.parametrize("buffer_size", [0, 64, 2**20], ids="{}B".format)
def test_coalesced_copies_are_aligned(topology, dtype, buffer_size):
    tensors = ones(topology.device(0), dtype)
    for row in comm.broadcast_coalesced(tensors, topology.take([0, 1, 1, 0]), buffer_size)[1:]:
        assert misaligned(row) == []


@floats
@pytest.mark.parametrize("create_graph", [False, True], ids="create_graph={}".format)
def test_gradients_of_copies_are_aligned(topology, dtype, create_graph):
    sources = [each.requires_grad_() for each in ones(topology.device(0), dtype)]
    rows = attached_copies(sources, topology.take(3))
    copies = [copy for row in rows for copy in row]
    weights = [copy.detach().requires_grad_(create_graph) for copy in copies]
    grads = torch.autograd.grad(copies, sources, weights, create_graph=create_graph)
    assert misaligned(grads) == []
    assert all(torch.equal(grad, torch.full_like(grad, 3)) for grad in grads)


@dtypes
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


@dtypes
@pytest.mark.parametrize("slot", [None, 0], ids=["cpu", "accelerator"])
def test_tensors_from_other_ranks_are_aligned(topology, dtype, slot):
    device = topology.device(slot)
    sent = ones(CPU, dtype)
    metas = list(map(TensorMeta.from_tensor, sent))
    size = count_bytes(metas, device)
    received = view_tensors(copy_to_bytes(sent, size, device), metas)
    assert misaligned(received) == []
    assert all(map(torch.equal, sent, (each.cpu() for each in received)))
