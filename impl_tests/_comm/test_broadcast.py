"""impl._comm.broadcast: copies for replicas, and the way of their gradients back."""

import weakref

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from impl._comm import broadcast as bucket_copies
from impl._comm.broadcast import attached_copies, detached_copies
from spec_tests.harness.concurrency.stream_log import streams_of

BOTH = pytest.mark.parametrize(
    "copy", [attached_copies, detached_copies], ids=["attached", "detached"]
)
SIZES = pytest.mark.parametrize("buffer_size", [0, 8, 16, 1 << 20], ids="bytes={}".format)
KINDS = {"leaves": lambda leaf: leaf, "views": lambda leaf: leaf.clone()[:1]}


def leaf(device, *values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device=device).requires_grad_()


def leaves(device):
    return [leaf(device, 1.0, 2.0) for _ in range(4)]


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


def distinct(topology, count):
    topology.require(distinct=count)
    return list(dict.fromkeys(topology.devices))[:count]


def backward(rows, weights):
    """Send the gradient ``weights[slot]`` back through each first tensor."""
    firsts = [row[0] for row in rows]
    grads = [torch.full_like(first, weight) for first, weight in zip(firsts, weights, strict=True)]
    torch.autograd.backward(firsts, grads)


def slopes(rows, roots):
    home = roots[0].device
    total = sum((copy.to(home) * copy.to(home)).sum() for row in rows for copy in row)
    return [slope[0].item() for slope in torch.autograd.grad(total, roots)]


@BOTH
def test_each_device_gets_the_values_in_order(topology, copy):
    sources = [leaf(topology.device(1), 1.0, 2.0), leaf(topology.device(1), 3.0)]
    devices = topology.take(3)
    rows = copy(sources, devices)
    assert [[tensor.device for tensor in row] for row in rows] == [[d, d] for d in devices]
    assert [[tensor.tolist() for tensor in row] for row in rows] == [[[1.0, 2.0], [3.0]]] * 3


@BOTH
@pytest.mark.parametrize("buffer_size", [0, 8, 1 << 20], ids="bytes={}".format)
def test_kinds_and_bucket_sizes_keep_the_order(topology, copy, buffer_size):
    device = topology.device(0)
    sources = [
        leaf(device, 1.0),
        torch.tensor([2], device=device),
        torch.tensor(3.0, device=device),
        leaf(device, 4.0 + 1j, dtype=torch.complex64),
        torch.empty(0, 3, device=device),
        leaf(device, 5.0),
        torch.zeros(1 << 19, device=device),
    ]
    _, row = copy(sources, [device, topology.device(1)], buffer_size=buffer_size)
    assert [(t.dtype, t.shape) for t in row] == [(t.dtype, t.shape) for t in sources]
    assert all(map(torch.equal, (t.cpu() for t in row), (t.cpu() for t in sources)))


@BOTH
def test_only_the_first_slot_at_home_shares_memory(topology, copy):
    home = topology.device(0)
    source = leaf(home, 1.0)
    rows = copy([source, leaf(home, 2.0)], [home, home, home])
    assert [memory(row[0]) == memory(source) for row in rows] == [True, False, False]
    assert memory(rows[1][0]) != memory(rows[2][0])


@BOTH
@pytest.mark.parametrize("with_grad", [True, False])
def test_where_none_is_at_home_all_are_copies(topology, copy, with_grad):
    home, away = distinct(topology, 2)
    sources = [leaf(home, 1.0), leaf(home, 2.0)]
    with torch.set_grad_enabled(with_grad):
        rows = copy(sources, [away, away])
    assert [[tensor.tolist() for tensor in row] for row in rows] == [[[1.0], [2.0]]] * 2
    assert not any(tensor._is_view() for row in rows for tensor in row)


@BOTH
def test_no_device_gets_nothing(topology, copy):
    assert copy([leaf(topology.device(0), 1.0)], []) == []


def test_a_detached_copy_at_home_is_the_object_itself(topology):
    source = nn.Parameter(torch.ones(2, device=topology.device(0)))
    assert detached_copies([source], topology.take(2))[0][0] is source


def test_copies_are_plain_and_require_grad_as_their_source(topology):
    home = topology.device(0)
    sources = [nn.Parameter(torch.ones(2, device=home)), torch.ones(2, device=home)]
    for row in attached_copies(sources, [home, home]):
        assert [type(tensor) for tensor in row] == [torch.Tensor, torch.Tensor]
        assert [tensor.requires_grad for tensor in row] == [True, False]


def test_without_grad_mode_no_copy_requires_grad(topology):
    with torch.no_grad():
        rows = attached_copies([leaf(topology.device(0), 1.0)], topology.take(2))
    assert [row[0].requires_grad for row in rows] == [False, False]


@BOTH
def test_a_change_in_place_leaves_the_neighbours_versions(topology, copy):
    home = topology.device(0)
    row = copy([leaf(home, 1.0), leaf(home, 2.0)], [home, home])[1]
    with torch.no_grad():
        row[0].add_(1)
    assert [tensor._version for tensor in row] == [1, 0]


@BOTH
def test_copies_are_row_major(topology, copy):
    home = topology.device(0)
    source = torch.ones(2, 3, 4, 5, device=home).to(memory_format=torch.channels_last)
    away = copy([source, source.clone()], [home, home])[1]
    assert [tensor.is_contiguous() for tensor in away] == [True, True]


@BOTH
def test_sparse_tensors_are_copied(topology, copy):
    home = topology.device(0)
    source = torch.eye(3).to_sparse().to(home)
    for row in copy([source, source], [home, topology.device(1)]):
        assert [tensor.layout for tensor in row] == [torch.sparse_coo, torch.sparse_coo]
        assert torch.equal(row[0].to_dense().cpu(), torch.eye(3))


def test_gradients_are_summed_on_the_source_device(topology):
    source = leaf(topology.device(0), 1.0, 1.0)
    backward(attached_copies([source], topology.take(3)), [1, 10, 100])
    assert source.grad.device == topology.device(0)
    assert source.grad.tolist() == [111.0, 111.0]


@pytest.mark.parametrize("elements", [1, 1 << 19], ids=["packed", "alone"])
def test_home_is_added_first_then_the_devices_in_order(topology, elements):
    # In float32, (1 - 2**30) + 2**30 is 0 and 1 + (2**30 - 2**30) is 1.
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


def test_an_unused_tensor_gets_no_gradient(topology):
    used, unused = leaf(topology.device(0), 1.0), leaf(topology.device(0), 1.0)
    backward(attached_copies([used, unused], topology.take(2)), [1, 1])
    assert used.grad.tolist() == [2.0]
    assert unused.grad is None


def test_a_tensor_that_one_replica_used_gets_that_gradient(topology):
    source, other = leaf(topology.device(0), 1.0), leaf(topology.device(0), 1.0)
    rows = attached_copies([source, other], topology.take(3))
    (rows[1][0] * 5).sum().backward()
    assert source.grad.tolist() == [5.0]
    assert other.grad is None


def test_in_place_work_at_home_without_grad_writes_through(topology):
    source = leaf(topology.device(0), 1.0)
    rows = attached_copies([source, leaf(topology.device(0), 1.0)], topology.take(2))
    with torch.no_grad():
        rows[0][0].mul_(3)
    assert source.tolist() == [3.0]
    backward(rows, [1, 10])
    assert source.grad.tolist() == [11.0]


def test_in_place_work_at_home_with_grad_is_refused(topology):
    source = leaf(topology.device(0), 1.0)
    rows = attached_copies([source, leaf(topology.device(0), 1.0)], topology.take(2))
    with pytest.raises(RuntimeError, match="view of a leaf Variable that requires grad"):
        rows[0][0].mul_(3)
    assert source.tolist() == [1.0]


def test_embedding_max_norm_works_on_the_first_replica(topology):
    embedding = nn.Embedding(3, 2, max_norm=0.5).to(topology.device(0))
    rows = attached_copies([embedding.weight], topology.take(2))
    index = torch.tensor([1], device=topology.device(0))
    nn.functional.embedding(index, rows[0][0], max_norm=0.5).sum().backward()
    assert embedding.weight[1].norm().item() <= 0.5 + 1e-6
    assert embedding.weight.grad.cpu().tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("sparse", [(True, True), (True, False), (False, True)], ids=str)
def test_sparse_gradients_are_summed(topology, sparse):
    weight = nn.Parameter(torch.zeros(3, 1, device=topology.device(0)))
    rows = attached_copies([weight], topology.take(2))
    index = [torch.tensor([1, 2], device=device) for device in topology.take(2)]
    found = [
        nn.functional.embedding(at, copy, sparse=flag).sum()
        for at, (copy,), flag in zip(index, rows, sparse, strict=True)
    ]
    torch.autograd.backward(found)
    assert weight.grad.is_sparse == all(sparse)
    assert weight.grad.to_dense().tolist() == [[0.0], [2.0], [2.0]]


def test_a_sparse_gradient_reaches_what_was_changed_in_place(topology):
    weight = torch.ones(3, 2, device=topology.device(0), requires_grad=True)
    copy = attached_copies([weight, leaf(topology.device(0), 1.0)], topology.take(2))[0][0]
    with torch.no_grad():
        copy.mul_(2)
    nn.functional.embedding(
        torch.tensor([1], device=copy.device), copy, sparse=True
    ).sum().backward()
    assert weight.grad.to_dense().tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


def test_gradients_have_the_strides_of_a_channels_last_parameter(topology):
    conv = nn.Conv2d(3, 4, 3).to(topology.device(0)).to(memory_format=torch.channels_last)
    for weight, bias in attached_copies(list(conv.parameters()), topology.take(2)):
        image = torch.ones(1, 3, 5, 5, device=weight.device)
        nn.functional.conv2d(image, weight, bias).sum().backward(retain_graph=True)
    assert conv.weight.grad.stride() == conv.weight.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("home", [0, 1, None], ids="home={}".format)
def test_copies_differentiate_twice(topology, dtype, home):
    device = topology.device(home)
    sources = [
        torch.randn(shape, dtype=dtype).to(device).requires_grad_() for shape in [(2, 2), (), (0,)]
    ]

    def flat(*tensors):
        return tuple(
            tensor for row in attached_copies(tensors, topology.take(3)) for tensor in row
        )

    assert gradcheck(flat, sources)
    assert gradgradcheck(flat, sources)


def test_cpu_devices_may_repeat():
    cpu = torch.device("cpu")
    source = leaf(cpu, 1.0)
    rows = attached_copies([source], [cpu, cpu])
    assert [memory(row[0]) == memory(source) for row in rows] == [True, False]
    backward(rows, [1, 10])
    assert source.grad.tolist() == [11.0]


def test_one_node_carries_each_bucket(topology):
    sources = [leaf(topology.device(0), 1.0) for _ in range(4)]
    rows = attached_copies(sources, topology.take(2), buffer_size=8)
    nodes = [tensor.grad_fn for tensor in rows[1]]
    assert nodes[0] is nodes[1]
    assert nodes[2] is nodes[3]
    assert nodes[0] is not nodes[2]


def test_a_bucket_is_summed_and_freed_while_backward_goes_on(topology):
    home = topology.device(0)
    early, late = leaf(home, 1.0), leaf(home, 1.0)
    rows = attached_copies([early, late], [home, home], buffer_size=1)
    grads, seen = [], []
    rows[1][1].register_hook(lambda grad: grads.append(weakref.ref(grad)))
    firsts = [row[0] * 2 for row in rows]
    # This point is passed after the late tensors' gradients, and well before the early ones'.
    firsts[0].register_hook(lambda grad: seen.append((late.grad is not None, grads[0]())))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).backward()
    assert seen == [(True, None)]


@SIZES
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("slots", [(0,), (0, 1), (1, 0, 2), (0, 0, 0, 1)], ids=str)
def test_any_copy_at_home_may_change_without_grad(topology, buffer_size, kind, index, slots):
    roots = leaves(topology.device(0))
    sources = list(map(kind, roots))
    rows = attached_copies(sources, topology.take(slots), buffer_size=buffer_size)
    with torch.no_grad():
        rows[slots.index(0)][index].mul_(3)
    expected = [2.0 * len(slots)] * 4
    expected[index] += 4.0
    values = [each[0].item() for each in sources]
    assert values == [3.0 if at == index else 1.0 for at in range(4)]
    assert slopes(rows, roots) == expected


@pytest.mark.parametrize("index", range(4))
def test_any_copy_at_home_of_no_leaf_may_change_with_grad(topology, index):
    roots = leaves(topology.device(0))
    sources = list(map(KINDS["views"], roots))
    changed = attached_copies(sources, topology.take(2))[0][index].mul_(3)
    (slope,) = torch.autograd.grad(changed.square().sum(), roots[index])
    assert sources[index].item() == 3.0
    assert slope.tolist() == [18.0, 0.0]


def test_a_changed_bucket_is_summed_while_backward_goes_on(topology):
    home = topology.device(0)
    early, late = leaves(home)[:2]
    rows = attached_copies([early, late], [home, home], buffer_size=1)
    with torch.no_grad():
        rows[0][1].mul_(3)
    seen = []
    firsts = [row[0] * 2 for row in rows]
    firsts[0].register_hook(lambda grad: seen.append(late.grad is not None))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).sum().backward()
    assert seen == [True]


def test_what_is_cut_off_travels_as_one_whether_it_required_grad_or_not(topology):
    first, second = distinct(topology, 2)
    sources = [torch.ones(2, device=first, requires_grad=grad) for grad in (True, False, True)]
    assert len(streams_of(lambda: detached_copies(sources, [second]))) == 1


def test_small_gradients_travel_as_one(topology):
    first, second = distinct(topology, 2)
    rows = [[torch.ones(2, device=it), torch.ones(3, device=it)] for it in (first, second)]
    found = []
    assert len(streams_of(lambda: found.extend(bucket_copies._sum_rows(rows, first)))) == 1
    assert [total.tolist() for total in found] == [[2.0] * 2, [2.0] * 3]


def test_a_gradient_that_comes_from_one_replica_is_not_added(topology):
    grad = torch.ones(2, device=topology.device(0))
    total, other = bucket_copies._sum_rows([[None, grad], [grad, None]], topology.device(0))
    assert total is other is grad
