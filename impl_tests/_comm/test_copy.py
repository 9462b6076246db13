"""impl._comm.copy: single tensors and buckets on their way to a device."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impl._comm.copy import copy_bucket, row_major_copy, send, small_and_large
from spec_tests.harness.concurrency.side_streams import late_copies, queued_arange

LARGE = 2**20


def of_bytes(*sizes):
    return [torch.zeros(size, dtype=torch.uint8) for size in sizes]


def storages(tensors):
    return [tensor.untyped_storage()._cdata for tensor in tensors]


@pytest.mark.parametrize(
    ("sizes", "small", "large"),
    [
        ([1, 1], [0, 1], []),
        ([LARGE - 1, LARGE - 1, LARGE], [0, 1], [2]),
        ([LARGE, 1, LARGE + 1, 1], [1, 3], [0, 2]),
        ([1], [], [0]),
        ([LARGE, 1], [], [0, 1]),
        ([LARGE], [], [0]),
        ([0, 0], [0, 1], []),
    ],
    ids=str,
)
def test_several_small_tensors_are_packed(sizes, small, large):
    assert small_and_large(of_bytes(*sizes)) == (small, large)


def test_sparse_tensors_travel_alone():
    assert small_and_large([torch.eye(2).to_sparse()] * 2) == ([], [0, 1])


@pytest.mark.parametrize("copy", [False, True])
def test_a_tensor_is_copied_where_it_is_only_if_wanted(topology, copy):
    tensor = torch.ones(2, 3, device=topology.device(0)).t()
    sent = send(tensor, topology.device(0), copy=copy)
    assert (sent is tensor) != copy
    assert (sent.stride(), sent.tolist()) == (tensor.stride(), tensor.tolist())


def test_a_tensor_is_not_copied_where_it_is_by_default(topology):
    tensor = torch.ones(2, device=topology.device(0))
    assert send(tensor, topology.device(0)) is tensor


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_major_copy_is_new_and_alike(topology, sparse):
    tensor = torch.arange(6.0, device=topology.device(0)).view(2, 3).t()
    tensor = tensor.to_sparse() if sparse else tensor
    copy = row_major_copy(tensor, topology.device(0))
    assert (copy is tensor, copy.layout) == (False, tensor.layout)
    assert copy.to_dense().tolist() == tensor.to_dense().tolist()
    assert sparse or copy.is_contiguous()


class OperatorLog(TorchDispatchMode):
    """The operators that run."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.append(func.overloadpacket)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("count", [2, 5])
def test_like_shapes_are_unpacked_at_once_wherever_they_stand(topology, count):
    bucket = [torch.ones(shape, device=topology.device(0)) for shape in [(3, 1), (16,)] * count]
    with OperatorLog() as log:
        copy_bucket(bucket, [topology.device(1)])
    assert log.found.count(torch.ops.aten.unbind) == 2


def test_nothing_is_packed_for_no_device(topology):
    bucket = [torch.ones(2, device=topology.device(0)) for _ in range(2)]
    with OperatorLog() as log:
        assert copy_bucket(bucket, []) == []
    assert log.found == []


def test_every_slot_gets_the_bucket_in_order(topology):
    bucket = [torch.full(shape, float(at)) for at, shape in enumerate([(3, 1), (2,), (), (2,)])]
    bucket = [*bucket, torch.full((LARGE,), 4.0)]
    there = [tensor.to(topology.device(0)) for tensor in bucket]
    devices = [topology.device(slot) for slot in (1, 0, 1)]
    rows = copy_bucket(there, devices)
    for row, device in zip(rows, devices, strict=True):
        assert [tensor.device for tensor in row] == [device] * 5
        assert [tensor.shape for tensor in row] == [tensor.shape for tensor in bucket]
        assert [tensor.flatten()[0].item() for tensor in row] == [0, 1, 2, 3, 4]


def test_rows_share_no_memory(topology):
    bucket = [torch.ones(2, device=topology.device(0)) for _ in range(2)]
    rows = copy_bucket(bucket, [topology.device(slot) for slot in (0, 1, 0, 1)])
    for one, other in itertools.combinations([bucket, *rows], 2):
        assert not {*storages(one)} & {*storages(other)}


def test_small_members_travel_as_one(topology):
    bucket = [torch.ones(2, device=topology.device(0)) for _ in range(2)]
    (row,) = copy_bucket(bucket, [topology.device(1)])
    assert len({*storages(row)}) == 1


def test_copies_have_no_history(topology):
    bucket = [torch.ones(2, device=topology.device(0), requires_grad=True) for _ in range(2)]
    (row,) = copy_bucket(bucket, [topology.device(1)])
    assert [tensor.requires_grad for tensor in row] == [False, False]


@pytest.mark.parametrize("move", [send, row_major_copy])
def test_a_copy_on_the_cpu_may_be_read_at_once(topology, move):
    tensor = queued_arange(topology, 0, 3)
    with late_copies(topology):
        assert move(tensor, torch.device("cpu")).tolist() == [1, 2, 3]


class CopyLog(TorchDispatchMode):
    """Notes of each copy whether the host may go on before it is done."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            given = {**dict(enumerate(args)), **(kwargs or {})}
            self.found.append(bool(given.get("non_blocking", given.get(2))))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("move", [send, row_major_copy])
def test_the_host_waits_for_copies_to_the_cpu_only(topology, move):
    topology.require(distinct=2)
    tensor = torch.ones(2, device=topology.device(0))
    with CopyLog() as log:
        move(tensor, topology.device(1))
        move(tensor, torch.device("cpu"))
    assert log.found == [True, False]
