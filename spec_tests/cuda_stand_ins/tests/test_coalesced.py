"""``torch._C._broadcast_coalesced``: the stand-in, or the primitive of a CUDA build.

A bucket is a group of tensors that are copied together. On all devices but the first, the copies
of one bucket share a storage. The tests recognize the buckets by these storages.
"""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.tensors import counting

BUFFER_SIZE = 1 << 20  # bytes


def to_first_device(topology, *tensors):
    return [tensor.to(topology.device(0)) for tensor in tensors]


def broadcast(topology, tensors, limit=BUFFER_SIZE):
    """Broadcast to two different devices and return one list of tensors per device."""
    topology.require(distinct=2)
    ordinals = list(dict.fromkeys(topology.ordinals))[:2]
    return torch._C._broadcast_coalesced(tensors, ordinals, limit)


def bucket_lengths(tensors):
    """Return for each storage, in order of first use, how many tensors share it."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [storages.count(storage) for storage in dict.fromkeys(storages)]


def test_empty_list_of_tensors_returns_one_empty_list_per_device(topology):
    assert torch._C._broadcast_coalesced([], [0, 0, 0], BUFFER_SIZE) == [[], [], []]


def test_empty_list_of_devices_raises(topology):
    # The CUDA primitive has undefined behavior for this call, so only the stand-in is tested.
    with pytest.raises(RuntimeError, match="needs at least one device"):
        STAND_INS["_broadcast_coalesced"]([], [], BUFFER_SIZE)


def test_tensor_on_the_cpu_raises(topology):
    first = topology.device(0).index
    with pytest.raises(RuntimeError) as caught:
        torch._C._broadcast_coalesced(
            [*to_first_device(topology, counting((4,))), counting((4,))], [first], BUFFER_SIZE
        )
    assert f"All tensors must be on devices[0]: {first}" in str(caught.value)


def test_tensor_on_another_device_raises(topology):
    topology.require(distinct=2)
    devices = [topology.device(0).index, topology.device(1).index]
    with pytest.raises(RuntimeError, match="All tensors must be on devices"):
        torch._C._broadcast_coalesced(
            [counting((4,)).to(topology.device(1))], devices, BUFFER_SIZE
        )


def test_negative_ordinal_after_the_first_raises(topology):
    devices = [topology.device(0).index, -1]
    with pytest.raises(RuntimeError, match="Expected non-negative device index, but got -1"):
        torch._C._broadcast_coalesced(
            to_first_device(topology, counting((4,))), devices, BUFFER_SIZE
        )


def test_copies_for_the_first_device_are_the_tensors_themselves(topology):
    tensors = [torch.nn.Parameter(counting((4,)).to(topology.device(0))) for _ in range(2)]
    tensors.append(tensors[0] * 2)
    graph = tensors[2].grad_fn
    results = torch._C._broadcast_coalesced(tensors, [topology.device(0).index] * 2, BUFFER_SIZE)
    assert isinstance(results, list)
    assert all(result is tensor for result, tensor in zip(results[0], tensors, strict=True))
    assert tensors[2].grad_fn is graph


def test_copies_for_other_devices_are_leaves_of_class_tensor(topology):
    tensors = [
        torch.nn.Parameter(tensor)
        for tensor in to_first_device(topology, counting((4,)), counting((4,)))
    ]
    for result in broadcast(topology, [*tensors, tensors[0] * 2])[1]:
        assert type(result) is torch.Tensor
        assert not result.requires_grad
        assert result.is_leaf
        assert not result._is_view()
        assert result._version == 0


def test_copies_have_values_dtype_and_device(topology):
    tensors = to_first_device(
        topology, counting((2, 3)), counting((3,), torch.int64), counting(())
    )
    results = broadcast(topology, tensors)
    for result, tensor in zip(results[1], tensors, strict=True):
        assert result.device == topology.device(1)
        assert result.dtype == tensor.dtype
        assert torch.equal(result.cpu(), tensor.cpu())


def test_tensors_of_a_bucket_share_a_storage_but_no_version_counter(topology):
    results = broadcast(topology, to_first_device(topology, counting((4,)), counting((2, 2))))[1]
    assert bucket_lengths(results) == [2]
    assert [result.storage_offset() for result in results] == [0, 4]
    results[0].zero_()
    assert [result._version for result in results] == [1, 0]
    assert torch.equal(results[1].cpu(), counting((2, 2)))


@pytest.mark.parametrize(
    "tensor",
    [counting((2, 3, 4, 5)).to(memory_format=torch.channels_last), counting((3, 4)).t()],
    ids=["channels-last", "transposed"],
)
@pytest.mark.parametrize("others", [0, 1], ids="other-tensors={}".format)
def test_copies_are_contiguous(topology, tensor, others):
    tensors = to_first_device(topology, tensor, *[counting((4,))] * others)
    result = broadcast(topology, tensors)[1][0]
    assert result.is_contiguous()
    assert torch.equal(result.cpu(), tensor)


@pytest.mark.parametrize(
    ("limit", "lengths"),
    [(16, [2, 2, 1]), (17, [3, 2]), (0, [1] * 5), (8, [1] * 5), (9, [2, 2, 1]), (1000, [5])],
    ids=lambda value: str(value),
)
def test_bucket_ends_with_the_tensor_that_reaches_the_limit(topology, limit, lengths):
    tensors = to_first_device(topology, *[counting((2,)) for _ in range(5)])
    assert bucket_lengths(broadcast(topology, tensors, limit)[1]) == lengths


def test_dtypes_use_separate_buckets_and_keep_their_order(topology):
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float16, torch.int64]
    tensors = to_first_device(topology, *[counting((2,), dtype) + 1 for dtype in dtypes])
    results = broadcast(topology, tensors)[1]
    assert [result.dtype for result in results] == dtypes
    assert bucket_lengths(results) == [2, 2, 1]


@pytest.mark.parametrize("shape", [(0,), (0, 16), (3, 0, 8)], ids=str)
@pytest.mark.parametrize("limit", [0, BUFFER_SIZE], ids="limit={}".format)
def test_empty_tensors_keep_their_shape_and_have_their_own_storage(topology, shape, limit):
    tensors = to_first_device(topology, counting((4,)), counting(shape), counting((4,)))
    results = broadcast(topology, tensors, limit)[1]
    assert results[1].shape == shape
    assert results[1].untyped_storage().nbytes() == 0


def broadcast_to_same_device_twice(topology, tensors, limit=BUFFER_SIZE):
    return torch._C._broadcast_coalesced(tensors, [topology.device(0).index] * 2, limit)


def test_repeated_device_gets_copies_of_a_bucket_of_two(topology):
    tensors = to_first_device(topology, counting((4,)), counting((4,)))
    results = broadcast_to_same_device_twice(topology, tensors)[1]
    assert bucket_lengths(results) == [2]
    assert results[0].data_ptr() != tensors[0].data_ptr()


def test_repeated_device_shares_memory_of_a_bucket_of_one(topology):
    tensors = to_first_device(topology, counting((2, 2)))
    (result,) = broadcast_to_same_device_twice(topology, tensors)[1]
    result.zero_()
    assert tensors[0].count_nonzero() == 0
    assert tensors[0]._version == 0
    assert result._version == 1


def test_small_buffer_size_makes_a_repeated_device_share_memory(topology):
    tensors = to_first_device(topology, counting((4,)), counting((4,)))
    results = broadcast_to_same_device_twice(topology, tensors, limit=0)[1]
    assert [each.data_ptr() for each in results] == [each.data_ptr() for each in tensors]


def test_noncontiguous_bucket_of_one_is_copied(topology):
    tensors = to_first_device(topology, counting((3, 4)))
    columns = [tensors[0].t()]
    (result,) = broadcast_to_same_device_twice(topology, columns)[1]
    assert result.data_ptr() != tensors[0].data_ptr()


def test_current_device_is_restored(topology):
    current = torch.accelerator.current_device_index()
    broadcast(topology, to_first_device(topology, counting((4,))))
    assert torch.accelerator.current_device_index() == current


def test_invalid_first_ordinal_raises_without_tensors(topology):
    with pytest.raises(RuntimeError):
        torch._C._broadcast_coalesced([], [torch.accelerator.device_count()], BUFFER_SIZE)
