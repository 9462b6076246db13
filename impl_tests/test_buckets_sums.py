"""impl._buckets: sums of lists that differ in dtypes or shapes."""

import pytest
import torch

from impl._buckets import reduce_lists

#: Addends whose float32 sum depends on the order: 1 + 2**25 rounds to 2**25.
WEIGHTS = (1.0, 2.0**25, -(2.0**25), 1.0)


def weighted_lists(topology, slots, shapes, dtype=torch.float32):
    """Return one list of tensors for each slot.

    Args:
        topology: The devices of the test run.
        slots: Indices of devices in the topology.
        shapes: The shapes of the tensors in each list.
        dtype: The dtype of all tensors.

    Returns:
        Lists of tensors. All elements in list i are ``WEIGHTS[i]``.
    """
    return [
        [torch.full(shape, weight, device=topology.device(slot), dtype=dtype) for shape in shapes]
        for slot, weight in zip(slots, WEIGHTS, strict=False)
    ]


def values(sums):
    return [sorted({*total.flatten().tolist()}) for total in sums]


@pytest.mark.parametrize("slots", [(0, 0), (0, 1)], ids=["local", "packed"])
def test_sums_of_lists_with_different_dtypes_have_the_promoted_dtype(topology, slots):
    first, second = weighted_lists(topology, slots, [(2,), (2,)])
    lists = [first, [tensor.double() for tensor in second]]
    sums = reduce_lists(lists, topology.device(0).index, 999)
    assert [total.dtype for total in sums] == [torch.float64] * 2
    assert values(sums) == [[WEIGHTS[0] + WEIGHTS[1]]] * 2


def test_reduce_lists_raises_for_lists_with_different_shapes(topology):
    first, second = weighted_lists(topology, (0, 0), [(2,), (2,)])
    with pytest.raises(ValueError, match="invalid size"):
        reduce_lists([first, [second[0], second[1].new_ones(3)]], topology.device(0).index, 999)


def ones(topology, slot, *dtypes):
    return [torch.ones(2, dtype=dtype, device=topology.device(slot)) for dtype in dtypes]


def test_each_list_is_bucketed_by_its_own_dtypes(topology):
    first = ones(topology, 0, torch.float32, torch.float64, torch.float32)
    second = ones(topology, 1, torch.float32, torch.float32, torch.float64)
    sums = reduce_lists([first, second], topology.device(0).index, 999)
    assert [total.dtype for total in sums] == [tensor.dtype for tensor in first]
    with pytest.raises(ValueError, match="got 4, but expected 6"):
        reduce_lists([first[:1] * 3, second], topology.device(0).index, 999)
