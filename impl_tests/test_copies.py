"""impl._copies: copies of tensors and buckets, their streams, and the format of joined tensors."""

import itertools

import pytest
import torch
from torch._prims_common import suggest_memory_format

from impl._buckets import copy_bucket, partition_by_size
from impl._copies import cat_on_device, copy_chunks, to_device, wrapper_to_device
from impl_tests.samples import OperatorLog

#: The size in bytes from which a tensor is copied without packing.
LARGE = 2**20


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


CPU = torch.device("cpu")


def tensors(dims):
    """Yield tensors with extents of 1 or 2, and with their strides in every order."""
    for order in itertools.permutations(range(dims)):
        for shape in itertools.product((1, 2), repeat=dims):
            yield torch.ones(shape).permute(order)


def expanded_and_spaced(tensor):
    """Yield variants of ``tensor``: along one dimension, elements are repeated or have gaps."""
    for dim in range(tensor.dim()):
        yield tensor.narrow(dim, 0, 1).expand_as(tensor)
        yield tensor.repeat_interleave(2, dim).narrow(dim, 0, tensor.size(dim))


def strides_suggested_for(tensor):
    memory_format = suggest_memory_format(tensor)
    return torch.empty(tensor.shape, memory_format=memory_format).stride()


@pytest.mark.parametrize("dims", [3, 4, 5])
def test_joined_tensor_has_the_memory_format_that_torch_suggests(dims):
    for tensor in tensors(dims):
        found = cat_on_device([tensor], 0, CPU)
        assert found.stride() == strides_suggested_for(tensor), (tensor.shape, tensor.stride())


def test_expanded_and_spaced_tensors_have_the_suggested_memory_format():
    for tensor in itertools.chain.from_iterable(map(expanded_and_spaced, tensors(4))):
        found = cat_on_device([tensor], 0, CPU)
        assert found.stride() == strides_suggested_for(tensor), (tensor.shape, tensor.stride())


@pytest.mark.parametrize("shape", [(0, 2, 2, 2), (2, 0, 2, 2), (2, 2, 0, 2)], ids=str)
def test_empty_tensors_are_joined_row_major(shape):
    tensor = torch.ones(shape).contiguous(memory_format=torch.channels_last)
    assert cat_on_device([tensor], 0, CPU).stride() == strides_suggested_for(tensor)


@pytest.mark.parametrize("dim", range(4))
def test_images_with_one_pixel_and_channel_are_joined_row_major(dim):
    images = [torch.ones(2, 1, 1, 1) for _ in range(2)]
    found = cat_on_device(images, dim, CPU)
    assert found.stride() == torch.empty(found.shape).stride()
