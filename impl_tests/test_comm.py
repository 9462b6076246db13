"""impl.comm and impl.functions: accepted arguments, buckets, warnings, waits of the host."""

import inspect

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from impl import comm, functions, gather, replicate, scatter
from impl_tests.helpers.modes import OperatorLog

#: Calls that copy the tensor ``x`` to or from the device ``other``.
CALLS = {
    "broadcast": lambda x, other: comm.broadcast(x, [other]),
    "broadcast out": lambda x, other: comm.broadcast(x, out=[torch.empty_like(x, device=other)]),
    "broadcast_coalesced": lambda x, other: comm.broadcast_coalesced([x, x], [x.device, other]),
    "reduce_add": lambda x, other: comm.reduce_add([x, x.to(other, non_blocking=True)], x.device),
    "scatter": lambda x, other: comm.scatter(x, [other]),
    "scatter out": lambda x, other: comm.scatter(x, out=[torch.empty_like(x, device=other)]),
    "gather": lambda x, other: comm.gather([x], 0, other),
    "gather out": lambda x, other: comm.gather([x], out=torch.empty_like(x, device=other)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_host_does_not_wait_for_copies_to_the_accelerator(topology, call):
    topology.require(distinct=2)
    first, second = sorted(set(topology.ordinals))[:2]
    x = torch.ones(2, device=torch.device(topology.accelerator, first))
    with OperatorLog() as log, torch.accelerator.device_index(first):
        call(x, torch.device(topology.accelerator, second))
    assert set(log.host_waits()) == {False}


@pytest.mark.parametrize("size", [1e7, -1, float("inf")])
def test_a_buffer_size_of_sums_may_be_any_number(topology, size):
    x = torch.ones(2, device=topology.device(0))
    (total,) = comm.reduce_add_coalesced([[x], [x]], x.device, size)
    assert total.tolist() == [2, 2]


#: The number of tensors in each test.
TENSORS = 6
counts = pytest.mark.parametrize("per_buffer", [1, 2, 3, 6], ids="per_buffer={}".format)


def make_tensors(device):
    return [torch.ones(4, device=device) for _ in range(TENSORS)]


def storage_count(tensors):
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors})


class ParametersAndBuffers(nn.Module):
    """A module with six parameters and six buffers of equal size."""

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


def test_comm_warning_names_the_line_of_the_caller(topology):
    x = torch.ones(1, device=topology.device(0))
    with pytest.warns(FutureWarning, match="-1") as caught:
        comm.gather([x], 0, -1)
    line = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


@pytest.mark.filterwarnings("ignore:Using -1:FutureWarning")
@pytest.mark.parametrize(
    "gather_on", [comm.gather, lambda x, dim, target: functions.Gather.apply(target, dim, *x)]
)
def test_device_minus_one_is_the_cpu_under_any_default_device(topology, gather_on):
    x = torch.ones(1, device=topology.device(0))
    with topology.device(1):
        assert gather_on([x], 0, -1).device == torch.device("cpu")


# PyTorch calls torch.jit.script when it computes the first forward derivative.
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_forward_mode_tangents_are_scattered_and_gathered_without_requires_grad(topology):
    with forward_ad.dual_level():
        x = torch.ones(4, device=topology.device(0))
        chunks = scatter(forward_ad.make_dual(x, 2 * x), topology.take(2))
        whole = gather(chunks, topology.device(0))
        tangents = [forward_ad.unpack_dual(dual).tangent.tolist() for dual in (*chunks, whole)]
    assert tangents == [[2.0] * 2, [2.0] * 2, [2.0] * 4]
