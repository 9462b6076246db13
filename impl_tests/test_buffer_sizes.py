"""impl.comm and impl.replicate: how many tensors travel in one buffer."""

import pytest
import torch
from torch import nn

from impl import comm, replicate

SIX = 6
sizes = pytest.mark.parametrize("together", [1, 2, 3, 6], ids="together={}".format)


def six(device):
    return [torch.ones(4, device=device) for _ in range(SIX)]


def memories(tensors):
    """How many pieces of memory these tensors lie in."""
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors})


class Twelve(nn.Module):
    """Six parameters and six buffers."""

    def __init__(self, device):
        super().__init__()
        self.weights = nn.ParameterList(six(device))
        for index, tensor in enumerate(six(device)):
            self.register_buffer(f"buffer{index}", tensor)


@sizes
def test_copies_of_one_buffer_lie_in_one_memory(topology, together):
    tensors = six(topology.device(0))
    _, copies = comm.broadcast_coalesced(tensors, topology.take(2), together * tensors[0].nbytes)
    assert memories(copies) == SIX // together


@sizes
def test_sums_of_one_buffer_lie_in_one_memory(topology, together):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    rows = six(first), six(second)
    sums = comm.reduce_add_coalesced(rows, first, together * rows[0][0].nbytes)
    assert memories(sums) == SIX // together


@sizes
@pytest.mark.parametrize("detach", [False, True])
def test_a_replica_is_copied_by_buffers(topology, together, detach):
    module = Twelve(topology.device(0))
    size = together * module.buffer0.nbytes
    _, replica = replicate(module, topology.take(2), detach, buffer_size=size)
    buffers = list(replica.buffers())
    assert memories(replica.weights) == SIX // together
    assert memories(buffers) == SIX // together


def test_all_of_a_small_module_is_copied_in_two_buffers_by_default(topology):
    _, replica = replicate(Twelve(topology.device(0)), topology.take(2))
    assert memories([*replica.weights, *replica.buffers()]) == 2
