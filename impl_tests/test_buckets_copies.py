"""impl._buckets: copies of tensors, and the sums of their gradients."""

import threading
import weakref

import pytest
import torch
from torch import nn

from impl import _buckets
from impl._buckets import attached_copies, detached_copies
from spec_tests.harness.concurrency.stream_log import streams_of
from spec_tests.strategies.tensor_subclasses import WARNINGS

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
