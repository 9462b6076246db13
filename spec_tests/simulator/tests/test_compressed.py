"""Compressed sparse tensors (CSR, CSC, BSR, BSC): construction, operators, copies, gradients."""

import copy

import pytest
import torch

pytestmark = [
    pytest.mark.usefixtures("sim"),
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta"),
    # PyTorch warns once in a process, when the first sparse tensor is created.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

DEVICE = "sim:2"
LAYOUTS = {
    "CSR": torch.sparse_csr,
    "CSC": torch.sparse_csc,
    "BSR": torch.sparse_bsr,
    "BSC": torch.sparse_bsc,
}
DENSE = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0], [0, 4, 5, 0]])
#: Functions that the operator sweep does not run on compressed tensors.
FUNCTIONS = {
    "to COO": lambda s: s.to_sparse(),
    "to CSC": lambda s: s.to_sparse_csc(),
    "to blocks": lambda s: s.to_sparse_bsr((2, 2)),
    "clone": lambda s: s.clone(),
    "sum of both": lambda s: s + s,
    "row sums": lambda s: torch.sum(s, 1, keepdim=True),
    "matrix times dense": lambda s: s @ torch.ones(4, 3, device=s.device),
    "matrix times matrix": lambda s: s @ s,
    "converted": lambda s: s.to(torch.float64),
    "changed in place": lambda s: s.clone().mul_(3),
    "zeroed in place": lambda s: s.clone().zero_(),
}


def compressed(device=DEVICE, layout="CSR"):
    blocks = (2, 2) if layout.startswith("B") else None
    return DENSE.to(device).to_sparse(layout=LAYOUTS[layout], blocksize=blocks)


def members(x):
    if x.layout == torch.sparse_coo:
        return x._indices(), x._values()
    if x.layout == torch.strided:
        return (x,)
    rows = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    indices = (x.crow_indices(), x.col_indices()) if rows else (x.ccol_indices(), x.row_indices())
    return *indices, x.values()


def assert_same(expected, actual, device=DEVICE):
    assert (actual.layout, actual.shape) == (expected.layout, expected.shape)
    assert str(actual.device) == device
    for want, got in zip(members(expected), members(actual), strict=True):
        assert str(got.device) == device
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_the_cpu(name):
    assert_same(FUNCTIONS[name](compressed("cpu")), FUNCTIONS[name](compressed()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_construction_from_dense_and_from_members_agrees_with_the_cpu(layout):
    x = compressed(layout=layout)
    assert_same(compressed("cpu", layout), x)
    assert_same(DENSE, x.to_dense())
    again = torch.sparse_compressed_tensor(*members(x), x.shape, layout=x.layout, device=DEVICE)
    assert_same(compressed("cpu", layout), again)
    assert "device='sim:2'" in repr(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("source", "destination"), [("cpu", "sim:1"), ("sim:1", "sim:3"), ("sim:3", "cpu")]
)
def test_copies_between_devices_share_no_memory(layout, source, destination):
    x = compressed(source, layout)
    y = x.to(destination)
    x.values().zero_()
    assert_same(compressed("cpu", layout), y, destination)
    y.copy_(x)
    assert not y.values().any()


@pytest.mark.parametrize("destination", ["cpu", "sim:2", "sim:3"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_like_factories_create_tensors_on_the_given_device(layout, destination):
    x = compressed(layout=layout)
    assert_same(
        torch.zeros_like(compressed("cpu", layout)),
        torch.zeros_like(x, device=destination),
        destination,
    )
    assert {str(member.device) for member in members(torch.empty_like(x, device=destination))} == {
        destination
    }


def test_operator_rejects_two_devices():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.sparse.sampled_addmm(
            compressed(), torch.ones(4, 3, device="sim:1"), torch.ones(3, 4, device=DEVICE)
        )


def test_deep_copies_share_no_memory():
    x = compressed()
    y = copy.deepcopy(x)
    x.values().zero_()
    assert_same(compressed("cpu"), y)
