"""Sparse COO tensors: built, summed, copied, differentiated."""

import copy
import io

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.usefixtures("sim"),
    # Asked once a process, by whoever builds the first sparse tensor.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

DEVICE = "sim:2"
INDICES = torch.tensor([[0, 1, 1], [2, 0, 0]])
VALUES = torch.tensor([1.0, 2.0, 3.0])
FUNCTIONS = {
    "coalesce": lambda s: s.coalesce(),
    "double": lambda s: s + s,
    "scaled": lambda s: s * 2,
    "negative": lambda s: -s,
    "transposed": lambda s: s.t(),
    "squared": lambda s: s * s,
    "cloned": lambda s: s.clone(),
    "selected": lambda s: s.index_select(0, torch.tensor([1], device=s.device)),
    "row sums": lambda s: torch.sparse.sum(s, 1),
    "concatenated": lambda s: torch.cat([s, s]),
    "zeros": torch.zeros_like,
    "detached": lambda s: s.detach(),
    "to float64": lambda s: s.to(torch.float64),
    "product": lambda s: torch.sparse.mm(s, torch.ones(3, 2, device=s.device)),
    "added to dense": lambda s: torch.ones(2, 3, device=s.device).add_(s),
    "masked": lambda s: torch.ones(2, 3, device=s.device).sparse_mask(s.coalesce()),
    "softmax": lambda s: torch.sparse.softmax(s.coalesce(), 1),
    "changed in place": lambda s: s.clone().mul_(2),
    "grown in place": lambda s: s.clone().add_(s),
    "emptied": lambda s: s.clone().zero_(),
}


def sparse(device=DEVICE):
    return torch.sparse_coo_tensor(INDICES.to(device), VALUES.to(device, copy=True), (2, 3))


def assert_same(expected, actual, device=DEVICE):
    assert str(actual.device) == device
    assert actual.layout == expected.layout
    if expected.is_sparse:
        assert actual.is_coalesced() == expected.is_coalesced()
        assert {str(part.device) for part in (actual._indices(), actual._values())} == {device}
        torch.testing.assert_close(actual._indices().cpu(), expected._indices())
        expected, actual = expected._values(), actual._values()
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_the_cpu(name):
    assert_same(FUNCTIONS[name](sparse("cpu")), FUNCTIONS[name](sparse()))


def test_construction_and_parts_agree_with_the_cpu():
    x = sparse()
    assert (x.sparse_dim(), x.dense_dim(), x._nnz()) == (2, 0, 3)
    assert_same(sparse("cpu").to_dense(), x.to_dense())
    assert_same(sparse("cpu").coalesce(), x.to_dense().to_sparse())
    assert str(torch.sparse_coo_tensor((2, 3), device=DEVICE).device) == DEVICE
    assert "device='sim:2'" in repr(x)


@pytest.mark.parametrize(
    ("origin", "goal"), [("cpu", "sim:1"), ("sim:1", "sim:3"), ("sim:3", "cpu")]
)
def test_copies_between_devices_share_nothing(origin, goal):
    x = sparse(origin)
    y = x.to(goal)
    x._values().zero_()
    assert_same(sparse("cpu"), y, goal)
    y.copy_(x)
    assert y._values().tolist() == [0, 0, 0]


def test_copying_dense_into_sparse_is_refused():
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        sparse().copy_(torch.ones(2, 3, device=DEVICE))


def test_two_devices_are_refused():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        sparse() + sparse("sim:1")


def test_gradients_are_sparse():
    net = nn.Embedding(4, 2, sparse=True).to(DEVICE)
    (net(INDICES.to(DEVICE)) * 2).sum().backward()
    assert net.weight.grad.is_sparse
    assert net.weight.grad.coalesce().values().tolist() == [[6, 6], [4, 4], [2, 2]]
    net(INDICES.to(DEVICE)).sum().backward()
    assert net.weight.grad.to_dense()[0].tolist() == [9, 9]


def test_gradients_flow_into_sparse_tensors():
    x = sparse().requires_grad_()
    (x * 2).to_dense().sum().backward()
    assert str(x.grad.device) == DEVICE


@pytest.mark.parametrize("keep", ["deepcopy", "save"])
def test_sparse_tensors_are_kept(keep):
    x = sparse()
    if keep == "save":
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        y = torch.load(file, weights_only=False)
    else:
        y = copy.deepcopy(x)
    assert_same(sparse("cpu"), y)


def test_reading_parts_does_not_disturb_a_detached_tensor():
    x = sparse().detach()
    assert x.is_sparse
    assert x._nnz() == 3
    assert not x.is_coalesced()


@pytest.mark.parametrize("goal", ["cpu", "sim:2", "sim:3"])
@pytest.mark.parametrize("make", [torch.empty_like, torch.zeros_like])
def test_shapes_are_taken_to_every_device(make, goal):
    like = make(sparse(), device=goal)
    assert (str(like.device), like.layout, like.shape) == (goal, torch.sparse_coo, (2, 3))
    assert str(like._values().device) == goal


def test_shapes_are_not_taken_to_what_is_no_device_of_ours():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.empty_like(sparse(), device="meta")
