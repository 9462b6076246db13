"""impl._buckets: buckets of tensors, packing, copies of buckets, and the sums of gradients."""

import threading
import weakref

import pytest
import torch
from torch import nn

from impl import _buckets
from impl._buckets import (
    attached_copies,
    detached_copies,
    pack,
    plan_buckets,
    reduce_lists,
    sizes_in_bytes,
    unpack,
)
from spec_tests.harness.concurrency.stream_log import streams_of
from spec_tests.strategies.tensor_subclasses import WARNINGS


def floats(*counts):
    return [torch.arange(float(count)) for count in counts]


@pytest.mark.parametrize(
    ("counts", "size", "expected"),
    [
        ([1, 1, 1, 1], 8, [[0, 1], [2, 3]]),
        ([1, 1, 1, 1, 1], 11, [[0, 1], [2, 3], [4]]),
        ([2, 3, 1], 12, [[0], [1], [2]]),
        ([3, 3, 1], 16, [[0], [1, 2]]),
        ([1, 5, 1], 8, [[0], [1], [2]]),
        ([5, 1, 1], 8, [[0], [1, 2]]),
        ([0, 5, 0], 8, [[0, 1], [2]]),
        ([1, 0, 5], 8, [[0, 1], [2]]),
        ([1, 1], 0, [[0], [1]]),
        ([1, 1, 1], 1, [[0], [1], [2]]),
        ([], 8, []),
    ],
    ids=str,
)
def test_a_bucket_is_closed_if_the_next_tensor_would_exceed_its_size(counts, size, expected):
    assert plan_buckets(floats(*counts), size) == expected


def test_each_dtype_layout_and_device_has_its_own_buckets():
    double = torch.ones(1, dtype=torch.float64)
    others = [torch.eye(1).to_sparse(), double, torch.ones(1, device="meta")]
    tensors = [*floats(1, 1), double, *floats(1), *others]
    assert plan_buckets(tensors, 8) == [[0, 1], [2], [3], [5], [4], [6]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"by_grad": True}, [[0, 2], [1, 3]]),
        ({"by_grad": False}, [[0, 1, 2, 3]]),
        ({}, [[0, 1, 2, 3]]),
    ],
    ids=str,
)
def test_by_grad_separates_tensors_that_require_grad(options, expected):
    tensors = floats(1, 1, 1, 1)
    tensors[1].requires_grad_()
    tensors[3].requires_grad_()
    assert plan_buckets(tensors, 99, **options) == expected


def test_sizes_include_the_indices_of_sparse_tensors():
    sparse = torch.eye(3).to_sparse()
    dense = [torch.ones(3), torch.ones(2, dtype=torch.float64), torch.ones(0)]
    assert sizes_in_bytes([*dense, sparse]) == [12, 16, 0, 2 * 3 * 8 + 3 * 4]


SHAPES = [(2, 3), (2, 3), (), (), (0, 4), (0, 4), (1,), (3,), (16,)]
SPACINGS = pytest.mark.parametrize("spacing", [1, 8], ids="spacing={}".format)


def pack_and_unpack(spacing, *, requires_grad=False):
    tensors = [1 + torch.rand(shape, dtype=torch.float64) for shape in SHAPES]
    flat = pack([tensor.requires_grad_(requires_grad) for tensor in tensors], spacing)
    return tensors, flat, unpack(flat, [tensor.shape for tensor in tensors], spacing)


def test_packed_tensors_begin_at_multiples_of_the_spacing():
    _, flat, pieces = pack_and_unpack(8)
    assert [piece.storage_offset() for piece in pieces] == [0, 8, 16, 24, 0, 0, 32, 40, 48]
    assert flat.shape == (64,)
    assert flat.count_nonzero() == sum(piece.numel() for piece in pieces)


@pytest.mark.parametrize(
    ("counts", "size"), [([3], 3), ([3, 3], 11), ([8, 8], 16), ([3, 0], 8), ([0, 3], 3), ([0], 0)]
)
def test_no_gap_follows_the_last_tensor(counts, size):
    tensors = floats(*counts)
    flat = pack(tensors, 8)
    assert flat.shape == (size,)
    assert list(map(len, unpack(flat, [tensor.shape for tensor in tensors], 8))) == counts


@pytest.mark.parametrize("spacing", [1, 2, 64])
def test_packing_one_tensor_copies_nothing(spacing):
    tensor = torch.ones(2, 3)
    assert pack([tensor], spacing).data_ptr() == tensor.data_ptr()


@SPACINGS
def test_unpacked_tensors_share_memory_but_no_version_counter(spacing):
    _, flat, pieces = pack_and_unpack(spacing)
    for piece in pieces:
        piece.fill_(7)
    assert (flat == 7).sum() == sum(piece.numel() for piece in pieces)
    assert [piece._version for piece in pieces] == [1] * len(SHAPES)
    assert flat._version == 0
    assert not any(piece._is_view() for piece in pieces)


@SPACINGS
def test_empty_unpacked_tensors_have_their_own_storages(spacing):
    _, flat, pieces = pack_and_unpack(spacing)
    storages = {piece.untyped_storage()._cdata for piece in (flat, pieces[4], pieces[5])}
    assert len(storages) == 3


@SPACINGS
def test_gradients_pass_through_unpacked_tensors_that_change_in_place(spacing):
    tensors, _, pieces = pack_and_unpack(spacing, requires_grad=True)
    pieces[0].mul_(2)
    grads = torch.autograd.grad([pieces[0].sum(), pieces[1].sum()], tensors[:2])
    assert [grad.unique().tolist() for grad in grads] == [[2.0], [1.0]]


SOURCES = {"leaves": lambda leaf: leaf, "views": lambda leaf: leaf.clone()[:1]}


def leaf(device, *values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device=device).requires_grad_()


def leaves(device):
    return [leaf(device, 1.0, 2.0) for _ in range(4)]


def distinct(topology, count):
    topology.require(distinct=count)
    return list(dict.fromkeys(topology.devices))[:count]


@pytest.mark.parametrize("elements", [1, 1 << 19], ids=["packed", "unpacked"])
def test_gradient_sum_begins_with_the_source_device(topology, elements):
    # The gradients are -(2**30), 1 and 2**30; the source device has the 1. In float32 the sum is
    # 1 if the 1 is added last. In any other order it is 0, because 1 - 2**30 rounds to -(2**30)
    # and 1 + 2**30 to 2**30. So this test shows only that the 1 is not added last.
    first, second, third = distinct(topology, 3)
    sources = [torch.ones(elements, device=second).requires_grad_() for _ in range(2)]
    rows = attached_copies(sources, [first, second, third])
    pairs = [
        (tensor, torch.full_like(tensor, weight))
        for row, weight in zip(rows, [-(2.0**30), 1.0, 2.0**30], strict=True)
        for tensor in row
    ]
    torch.autograd.backward(*zip(*pairs, strict=True))
    assert [source.grad.count_nonzero().item() for source in sources] == [0, 0]


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("late", range(3))
def test_gradient_sum_of_a_wrapper_does_not_depend_on_time(topology, late):
    # A thread numbers its nodes from 0, and backward runs the nodes with the highest numbers
    # first. So the gradient of the copy ``late`` is ready last.
    device = topology.device(0)
    data, mask = torch.ones(2, device=device), torch.ones(2, dtype=torch.bool, device=device)
    source = torch.masked.masked_tensor(data, mask, requires_grad=True)
    rows = attached_copies([source], [device] * 3)
    outputs = [None] * 3

    def scale(index):
        outputs[index] = rows[index][0] * [-(2.0**30), 1.0, 2.0**30][index]

    for index in range(3):
        if index != late:
            scale(index)
    thread = threading.Thread(target=scale, args=[late])
    thread.start()
    thread.join()
    torch.autograd.backward([output.sum() for output in outputs])
    assert source.grad.get_data().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("sparse", [(True, True), (True, False), (False, True)], ids=str)
def test_sparse_and_dense_gradients_of_copies_are_summed(topology, sparse):
    weight = nn.Parameter(torch.zeros(3, 1, device=topology.device(0)))
    rows = attached_copies([weight], topology.take(2))
    indices = [torch.tensor([1, 2], device=device) for device in topology.take(2)]
    outputs = [
        nn.functional.embedding(index, copy, sparse=is_sparse).sum()
        for index, (copy,), is_sparse in zip(indices, rows, sparse, strict=True)
    ]
    torch.autograd.backward(outputs)
    assert weight.grad.is_sparse == all(sparse)
    assert weight.grad.to_dense().tolist() == [[0.0], [2.0], [2.0]]


def test_gradients_of_a_bucket_are_summed_and_freed_before_backward_ends(topology):
    device = topology.device(0)
    early, late = leaf(device, 1.0), leaf(device, 1.0)
    rows = attached_copies([early, late], [device, device], buffer_size=1)
    grads, seen = [], []
    rows[1][1].register_hook(lambda grad: grads.append(weakref.ref(grad)))
    firsts = [row[0] * 2 for row in rows]
    # Backward calls this hook when all copies of ``late`` have their gradients, but the first copy
    # of ``early`` has none yet.
    firsts[0].register_hook(lambda grad: seen.append((late.grad is not None, grads[0]())))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).backward()
    assert seen == [(True, None)]


def test_gradients_of_a_bucket_with_a_changed_copy_are_summed_before_backward_ends(topology):
    device = topology.device(0)
    early, late = leaves(device)[:2]
    rows = attached_copies([early, late], [device, device], buffer_size=1)
    with torch.no_grad():
        rows[0][1].mul_(3)
    seen = []
    firsts = [row[0] * 2 for row in rows]
    firsts[0].register_hook(lambda grad: seen.append(late.grad is not None))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).sum().backward()
    assert seen == [True]


@pytest.mark.parametrize("index", range(4))
def test_copy_of_a_view_changed_in_place_passes_its_gradient_to_the_source(topology, index):
    roots = leaves(topology.device(0))
    sources = list(map(SOURCES["views"], roots))
    changed = attached_copies(sources, topology.take(2))[0][index].mul_(3)
    (grad,) = torch.autograd.grad(changed.square().sum(), roots[index])
    assert sources[index].item() == 3.0
    assert grad.tolist() == [18.0, 0.0]


def test_detached_copies_are_made_by_one_transfer(topology):
    first, second = distinct(topology, 2)
    sources = [torch.ones(2, device=first, requires_grad=grad) for grad in (True, False, True)]
    assert len(streams_of(lambda: detached_copies(sources, [second]))) == 1


def test_small_gradients_are_summed_with_one_transfer(topology):
    first, second = distinct(topology, 2)
    rows = [[torch.ones(2, device=d), torch.ones(3, device=d)] for d in (first, second)]
    sums = []
    assert len(streams_of(lambda: sums.extend(_buckets._sum_rows(rows, first)))) == 1
    assert [total.tolist() for total in sums] == [[2.0] * 2, [2.0] * 3]


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
