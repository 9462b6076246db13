"""Sparse COO tensors: construction, operators, copies, gradients."""

import copy
import io

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.usefixtures("sim"),
    # PyTorch warns once in a process, when the first sparse tensor is created.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

DEVICE = "sim:2"
INDICES = torch.tensor([[0, 1, 1], [2, 0, 0]])
VALUES = torch.tensor([1.0, 2.0, 3.0])
#: Functions that the operator sweep does not run on sparse tensors.
FUNCTIONS = {
    "coalesce": lambda s: s.coalesce(),
    "cloned": lambda s: s.clone(),
    "selected": lambda s: s.index_select(0, torch.tensor([1], device=s.device)),
    "row sums": lambda s: torch.sparse.sum(s, 1),
    "concatenated": lambda s: torch.cat([s, s]),
    "to float64": lambda s: s.to(torch.float64),
    "product": lambda s: torch.sparse.mm(s, torch.ones(3, 2, device=s.device)),
    "added to dense": lambda s: torch.ones(2, 3, device=s.device).add_(s),
    "changed in place": lambda s: s.clone().mul_(2),
    "zeroed in place": lambda s: s.clone().zero_(),
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


def test_construction_agrees_with_the_cpu():
    x = sparse()
    assert (x.sparse_dim(), x.dense_dim(), x._nnz()) == (2, 0, 3)
    assert_same(sparse("cpu").to_dense(), x.to_dense())
    assert_same(sparse("cpu").coalesce(), x.to_dense().to_sparse())
    assert str(torch.sparse_coo_tensor((2, 3), device=DEVICE).device) == DEVICE
    assert "device='sim:2'" in repr(x)


@pytest.mark.parametrize(
    ("source", "destination"), [("cpu", "sim:1"), ("sim:1", "sim:3"), ("sim:3", "cpu")]
)
def test_copies_between_devices_share_no_memory(source, destination):
    x = sparse(source)
    y = x.to(destination)
    x._values().zero_()
    assert_same(sparse("cpu"), y, destination)
    y.copy_(x)
    assert y._values().tolist() == [0, 0, 0]


def test_copying_dense_into_sparse_raises():
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        sparse().copy_(torch.ones(2, 3, device=DEVICE))


def test_operator_rejects_two_devices():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        sparse() + sparse("sim:1")


def test_sparse_embedding_has_sparse_gradients():
    net = nn.Embedding(4, 2, sparse=True).to(DEVICE)
    (net(INDICES.to(DEVICE)) * 2).sum().backward()
    assert net.weight.grad.is_sparse
    assert net.weight.grad.coalesce().values().tolist() == [[6, 6], [4, 4], [2, 2]]
    net(INDICES.to(DEVICE)).sum().backward()
    assert net.weight.grad.to_dense()[0].tolist() == [9, 9]


def test_sparse_tensor_gets_a_gradient():
    x = sparse().requires_grad_()
    (x * 2).to_dense().sum().backward()
    assert str(x.grad.device) == DEVICE


@pytest.mark.parametrize("method", ["deepcopy", "save"])
def test_copied_and_saved_tensors_are_equal(method):
    x = sparse()
    if method == "save":
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        y = torch.load(file, weights_only=False)
    else:
        y = copy.deepcopy(x)
    assert_same(sparse("cpu"), y)


@pytest.mark.parametrize("destination", ["cpu", "sim:2", "sim:3"])
@pytest.mark.parametrize("make", [torch.empty_like, torch.zeros_like])
def test_like_factories_create_tensors_on_the_given_device(make, destination):
    like = make(sparse(), device=destination)
    assert (str(like.device), like.layout, like.shape) == (destination, torch.sparse_coo, (2, 3))
    assert str(like._values().device) == destination


def test_like_factories_reject_other_device_types():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.empty_like(sparse(), device="meta")
