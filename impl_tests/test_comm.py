"""impl.comm: accepted arguments, an error text, and copies without a wait of the host."""

import pytest
import torch

from impl import comm
from impl_tests.samples import OperatorLog

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


def test_broadcast_coalesced_accepts_an_iterator_of_tensors(topology):
    tensors = [torch.tensor([float(index)], device=topology.device(0)) for index in range(3)]
    rows = comm.broadcast_coalesced(iter(tensors), topology.take(2))
    assert [[tensor.item() for tensor in row] for row in rows] == [[0, 1, 2]] * 2


def test_gather_accepts_an_iterator_of_tensors(topology):
    tensors = [torch.tensor([float(index)], device=topology.device(index)) for index in range(3)]
    assert comm.gather(iter(tensors)).tolist() == [0, 1, 2]


def test_error_names_the_devices_of_the_stream_and_the_chunk(topology):
    topology.require(distinct=2)
    device, other = topology.take(2)
    text = rf"at index 0 \(was {other.index}\) .* \(expected {device.index}\)"
    with pytest.raises(RuntimeError, match=text):
        comm.scatter(torch.ones(2), [device], streams=[torch.Stream(other)])


@pytest.mark.parametrize("function", [comm.broadcast_coalesced, comm.reduce_add_coalesced])
def test_a_buffer_size_that_is_no_number_is_refused(topology, function):
    x = torch.ones(2, device=topology.device(0))
    arguments = ([x], [0]) if function is comm.broadcast_coalesced else ([[x]], 0)
    with pytest.raises(TypeError, match="buffer_size must be a number of bytes, not str"):
        function(*arguments, "1")


def test_an_ordinal_that_does_not_fit_into_an_index_is_refused(topology):
    # torch.device("cuda", 256) is torch.device("cuda", 0).
    x = torch.ones(2, device=topology.device(0))
    with pytest.raises(RuntimeError, match="no device with the index 256"):
        comm.reduce_add([x, x], 256)


@pytest.mark.parametrize("devices", [0, False])
def test_devices_that_are_no_iterable_are_refused(topology, devices):
    with pytest.raises(TypeError):
        comm.broadcast(torch.ones(2, device=topology.device(0)), devices)
