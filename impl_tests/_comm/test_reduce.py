"""impl._comm.reduce: in which order tensors are added, where, and what the sums are like."""

import pytest
import torch

from impl._comm.reduce import add_buckets, reduce_lists, reduce_tensors

#: Added in another order they give another sum: 1 is lost beside 2**25.
WEIGHTS = (1.0, 2.0**25, -(2.0**25), 1.0)
LARGE = 2**18 + 1
SHAPES = [(2,), (2, 3), (LARGE,), ()]


def ordered_sum(weights):
    total = torch.tensor(weights[0])
    for weight in weights[1:]:
        total = total + torch.tensor(weight)
    return total.item()


def lists_of(topology, slots, shapes, dtype=torch.float32):
    """One list for each slot, all elements of which are its weight."""
    return [
        [torch.full(shape, weight, device=topology.device(slot), dtype=dtype) for shape in shapes]
        for slot, weight in zip(slots, WEIGHTS, strict=False)
    ]


def values(sums):
    return [sorted({*total.flatten().tolist()}) for total in sums]


@pytest.mark.parametrize(
    ("slots", "order"),
    [
        ((0, 1, 1), (0, 1, 2)),
        ((1, 0, 1), (1, 0, 2)),
        ((1, 0, 0), (2, 0, 1)),
        ((0, 0, 1, 0), (3, 0, 1, 2)),
        ((0, 0, 0), (2, 0, 1)),
        ((0, 0), (1, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("shapes", [[(2,)], [(2,), (3,)], SHAPES], ids=["one", "small", "all"])
def test_the_last_addend_at_the_destination_comes_first(topology, slots, order, shapes):
    topology.require(distinct=2)
    lists = lists_of(topology, slots, shapes)
    ordinal = topology.device(0).index
    expected = [[ordered_sum([WEIGHTS[at] for at in order])]] * len(shapes)
    sums = reduce_lists(lists, ordinal, 64)
    alone = [reduce_tensors(addends, ordinal) for addends in zip(*lists, strict=True)]
    assert values(sums) == values(alone) == expected
    assert {total.device for total in (*sums, *alone)} == {topology.device(0)}


@pytest.mark.parametrize("slots", [(0, 0), (0, 1), (0, 1, 1), (1, 0, 1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("shapes", [[(2,)], SHAPES], ids=["one", "all"])
def test_buckets_are_added_in_the_order_given(topology, slots, shapes):
    lists = lists_of(topology, slots, shapes)
    sums = add_buckets(lists, topology.device(0))
    assert values(sums) == [[ordered_sum(WEIGHTS[: len(slots)])]] * len(shapes)
    assert [total.shape for total in sums] == [torch.Size(shape) for shape in shapes]
    assert {total.device for total in sums} == {topology.device(0)}


@pytest.mark.parametrize("slots", [(0, 0), (0, 1)], ids=["local", "packed"])
def test_addends_stay_as_they_were(topology, slots):
    lists = lists_of(topology, slots, SHAPES)
    reduce_lists(lists, topology.device(0).index, 64)
    add_buckets(lists, topology.device(0))
    assert [values(tensors) for tensors in lists] == [[[WEIGHTS[at]]] * 4 for at in range(2)]


@pytest.mark.parametrize("slots", [(0, 0), (0, 1), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("which", [0, 1, -1])
def test_sums_of_lists_are_row_major(topology, slots, which):
    lists = lists_of(topology, slots, [(2, 3), (2, 3)])
    lists[which] = [tensor.t().contiguous().t() for tensor in lists[which]]
    sums = reduce_lists(lists, topology.device(0).index, 999)
    assert [total.is_contiguous() for total in sums] == [True, True]


@pytest.mark.parametrize("slots", [(0, 0), (0, 1)], ids=["local", "packed"])
def test_sums_of_lists_count_their_own_changes_and_have_no_history(topology, slots):
    lists = lists_of(topology, slots, [(2,), (3,)])
    for tensors in lists:
        tensors[0].requires_grad_()
    first, second = reduce_lists(lists, topology.device(0).index, 999)
    first.add_(1)
    assert (first._version, second._version) == (1, 0)
    assert not first.requires_grad


def test_a_single_list_is_its_own_sum(topology):
    lists = lists_of(topology, [0], [(2,), (3,)])
    apart = reduce_lists(lists, topology.device(0).index, 0)
    together = reduce_lists(lists, topology.device(0).index, 999)
    assert values(apart) == values(together) == [[1.0], [1.0]]
    assert [total.data_ptr() for total in apart] == [each.data_ptr() for each in lists[0]]
    assert reduce_tensors(lists[0][:1], topology.device(0).index) is lists[0][0]


@pytest.mark.parametrize("slots", [(0, 0), (0, 1)], ids=["local", "packed"])
def test_lists_of_other_dtypes_are_added_as_tensors_are(topology, slots):
    one, other = lists_of(topology, slots, [(2,), (2,)])
    sums = reduce_lists([one, [each.double() for each in other]], topology.device(0).index, 999)
    assert [total.dtype for total in sums] == [torch.float64] * 2
    assert values(sums) == [[WEIGHTS[0] + WEIGHTS[1]]] * 2


@pytest.mark.parametrize("slots", [(0, 0), (0, 1)], ids=["local", "packed"])
def test_gradients_flow_through_sums_of_buckets(topology, slots):
    lists = lists_of(topology, slots, SHAPES)
    leaves = [tensor.requires_grad_() for tensors in lists for tensor in tensors]
    sums = add_buckets(lists, topology.device(0))
    grads = torch.autograd.grad(sums, leaves, [torch.full_like(total, 3.0) for total in sums])
    assert values(grads) == [[3.0]] * 8


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([(2, 3), (3, 2)], "input 1 has invalid size: got 3x2, but expected 2x3"),
        ([(2,), (2,), (1, 2)], "input 2 has invalid size: got 1x2, but expected 2"),
    ],
    ids=["second", "third"],
)
def test_another_shape_is_named(topology, shapes, text):
    addends = [torch.ones(shape, device=topology.device(0)) for shape in shapes]
    with pytest.raises(ValueError) as caught:
        reduce_tensors(addends, topology.device(0).index)
    assert str(caught.value) == text


def test_lists_whose_buckets_differ_are_refused(topology):
    one, other = lists_of(topology, (0, 0), [(2,), (2,)])
    with pytest.raises(ValueError, match="invalid size"):
        reduce_lists([one, [other[0], other[1].new_ones(3)]], topology.device(0).index, 999)


def kinds(topology, slot, *dtypes):
    return [torch.ones(2, dtype=dtype, device=topology.device(slot)) for dtype in dtypes]


def test_each_list_is_cut_by_its_own_kinds(topology):
    one = kinds(topology, 0, torch.float32, torch.float64, torch.float32)
    other = kinds(topology, 1, torch.float32, torch.float32, torch.float64)
    sums = reduce_lists([one, other], topology.device(0).index, 999)
    assert [total.dtype for total in sums] == [tensor.dtype for tensor in one]
    with pytest.raises(ValueError, match="got 4, but expected 6"):
        reduce_lists([one[:1] * 3, other], topology.device(0).index, 999)


def test_lists_that_are_cut_into_more_buckets_are_refused(topology):
    one = kinds(topology, 0, torch.float32, torch.float32)
    other = kinds(topology, 1, torch.float32, torch.float64)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        reduce_lists([[one[0], one[1][:0]], [other[0], other[1][:0]]], one[0].get_device(), 999)
