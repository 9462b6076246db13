"""impl._copies: copies of single tensors and of buckets, and the streams of copies."""

import itertools

import pytest
import torch

from impl._buckets import copy_bucket, partition_by_size
from impl._copies import copy_chunks, row_major_copy, to_device, wrapper_to_device
from impl_tests.samples import OperatorLog
from spec_tests.harness.concurrency.side_streams import late_copies, queued_arange

#: The size in bytes from which a tensor is copied without packing.
LARGE = 2**20
CPU = torch.device("cpu")


def storages(tensors):
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def two_tensors(topology, **options):
    return [torch.ones(2, device=topology.device(0), **options) for _ in range(2)]


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
def test_tensors_are_packed_if_at_least_two_are_small(sizes, small, large):
    bucket = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    assert partition_by_size(bucket) == (small, large)


def test_sparse_tensors_are_not_packed():
    assert partition_by_size([torch.eye(2).to_sparse()] * 2) == ([], [0, 1])


@pytest.mark.parametrize(
    ("options", "is_same"), [({}, True), ({"copy": False}, True), ({"copy": True}, False)], ids=str
)
def test_tensor_on_the_target_device_is_copied_only_with_copy_true(topology, options, is_same):
    tensor = torch.ones(2, 3, device=topology.device(0)).t()
    sent = to_device(tensor, topology.device(0), **options)
    assert (sent is tensor) == is_same
    assert (sent.stride(), sent.tolist()) == (tensor.stride(), tensor.tolist())


@pytest.mark.parametrize("sparse", [False, True], ids="sparse={}".format)
def test_row_major_copy_is_a_new_equal_tensor(topology, sparse):
    tensor = torch.arange(6.0, device=topology.device(0)).view(2, 3).t()
    tensor = tensor.to_sparse() if sparse else tensor
    copy = row_major_copy(tensor, topology.device(0))
    assert (copy is tensor, copy.layout) == (False, tensor.layout)
    assert copy.to_dense().tolist() == tensor.to_dense().tolist()
    assert sparse or copy.is_contiguous()


def narrowed_tensor():
    """Return a jagged tensor with gaps between its rows."""
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 3])
    rows = torch.arange(24.0).reshape(2, 4, 3).requires_grad_()
    return torch.nested.narrow(rows, 1, starts, lengths, layout=torch.jagged)


def transposed_tensor():
    """Return a jagged tensor whose second dimension is not the jagged one."""
    rows = [torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    return nested.requires_grad_().transpose(1, 2)


@pytest.mark.parametrize("make", [narrowed_tensor, transposed_tensor])
@pytest.mark.parametrize("requires_grad", [False, True], ids="requires_grad={}".format)
def test_copy_of_a_jagged_tensor_has_its_rows(topology, make, requires_grad):
    tensor = make() if requires_grad else make().detach()
    copy = wrapper_to_device(tensor, topology.device(0))
    assert (copy.device, copy.requires_grad) == (topology.device(0), requires_grad)
    assert [row.tolist() for row in copy.unbind()] == [row.tolist() for row in tensor.unbind()]


@pytest.mark.parametrize("count", [2, 5])
def test_tensors_of_one_shape_are_unpacked_by_one_operator(topology, count):
    bucket = [torch.ones(shape, device=topology.device(0)) for shape in [(3, 1), (16,)] * count]
    with OperatorLog() as log:
        copy_bucket(bucket, [topology.device(1)])
    assert log.recorded_operators().count(torch.ops.aten.unbind) == 2


def test_copy_bucket_without_devices_runs_no_operator(topology):
    bucket = two_tensors(topology)
    with OperatorLog() as log:
        assert copy_bucket(bucket, []) == []
    assert log.recorded_operators() == []


def test_each_device_receives_the_bucket_in_order(topology):
    shapes = [(3, 1), (2,), (), (2,), (LARGE,)]
    device = topology.device(0)
    bucket = [torch.full(shape, float(i), device=device) for i, shape in enumerate(shapes)]
    targets = topology.take([1, 0, 1])
    for row, target in zip(copy_bucket(bucket, targets), targets, strict=True):
        assert [tensor.device for tensor in row] == [target] * 5
        assert [tensor.shape for tensor in row] == [tensor.shape for tensor in bucket]
        assert [tensor.flatten()[0].item() for tensor in row] == [0, 1, 2, 3, 4]


def test_copies_of_a_bucket_share_no_memory(topology):
    bucket = two_tensors(topology)
    rows = copy_bucket(bucket, topology.take([0, 1, 0, 1]))
    for first, second in itertools.combinations([bucket, *rows], 2):
        assert not storages(first) & storages(second)


def test_copies_of_small_tensors_share_one_storage_and_require_no_grad(topology):
    (row,) = copy_bucket(two_tensors(topology, requires_grad=True), [topology.device(1)])
    assert len(storages(row)) == 1
    assert [tensor.requires_grad for tensor in row] == [False, False]


@pytest.mark.parametrize("copy", [to_device, row_major_copy])
def test_copy_to_the_cpu_can_be_read_immediately(topology, copy):
    tensor = queued_arange(topology, 0, 3)
    with late_copies(topology):
        assert copy(tensor, CPU).tolist() == [1, 2, 3]


@pytest.mark.parametrize("copy", [to_device, row_major_copy])
def test_host_waits_only_for_copies_to_the_cpu(topology, copy):
    topology.require(distinct=2)
    tensor = torch.ones(2, device=topology.device(0))
    with OperatorLog() as log:
        copy(tensor, topology.device(1))
        copy(tensor, CPU)
    assert log.host_waits() == [False, True]


class RecordingOutput:
    """An output on device 0 that records the current stream when it is written."""

    stream = None

    def get_device(self):
        return 0

    def copy_(self, chunk, *, non_blocking):
        self.stream = torch.accelerator.current_stream(0)


@pytest.mark.parametrize("missing", [None, "shorter list"])
def test_outputs_without_a_stream_are_written_on_the_stream_before(topology, missing):
    stream = torch.Stream(torch.device(topology.accelerator, 0))
    outputs = [RecordingOutput(), RecordingOutput()]
    chunks = [torch.ones(1)] * 2
    copy_chunks(chunks, outputs, [stream, None] if missing is None else [stream])
    assert [output.stream for output in outputs] == [stream, stream]
