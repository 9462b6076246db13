"""Tensors that consist of several tensors: sparse (COO, CSR, CSC, BSR, BSC) and nested tensors.

The operator sweep runs operators of sparse COO and CSR tensors. The chapters copy tensors of all
layouts between devices.
"""

import pytest
import torch
from torch import nn

from spec_tests import simulator

pytestmark = [
    pytest.mark.usefixtures("sim"),
    # PyTorch warns once in a process, when the first tensor of a layout is created.
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
]

DEVICE = "sim:2"
DENSE = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0], [0, 4, 5, 0]])
#: Functions that make a tensor of each layout on a device.
LAYOUTS = {
    # Row 0 has column 1 twice, so the tensor is not coalesced.
    "COO": lambda device: torch.sparse_coo_tensor(
        torch.tensor([[0, 3, 0], [1, 2, 1]], device=device),
        torch.tensor([1.0, 2.0, 3.0], device=device),
        (4, 4),
    ),
    "CSR": lambda device: DENSE.to(device).to_sparse_csr(),
    "CSC": lambda device: DENSE.to(device).to_sparse_csc(),
    "BSR": lambda device: DENSE.to(device).to_sparse_bsr((2, 2)),
    "BSC": lambda device: DENSE.to(device).to_sparse_bsc((2, 2)),
    "nested": lambda device: torch.nested.nested_tensor([DENSE[:1], DENSE[1:]], device=device),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)
#: Functions that the operator sweep does not run on these layouts.
FUNCTIONS = {
    "COO": [
        lambda s: s.coalesce(),
        lambda s: s.clone().mul_(2),
        lambda s: s.clone().zero_(),
        lambda s: s.index_select(0, torch.tensor([3], device=s.device)),
        lambda s: torch.ones(4, 4, device=s.device).add_(s),
        lambda s: torch.sparse.sum(s, 1),
    ],
    "CSR": [
        lambda s: s.to_sparse(),
        lambda s: s.to_sparse_csc(),
        lambda s: s.to_sparse_bsr((2, 2)),
        lambda s: s.clone().mul_(3),
        lambda s: s + s,
        lambda s: s @ s,
        lambda s: s.to(torch.float64),
    ],
    "nested": [
        lambda n: n.to_padded_tensor(-1.0),
        lambda n: torch.softmax(n + n, -1),
        lambda n: nn.functional.linear(n, torch.ones(2, 4, device=n.device)),
        lambda n: n.to(torch.float64),
    ],
}
CASES = [(layout, number) for layout, each in FUNCTIONS.items() for number in range(len(each))]


@pytest.mark.parametrize(("layout", "number"), CASES)
def test_functions_agree_with_the_cpu(layout, number):
    function, make = FUNCTIONS[layout][number], LAYOUTS[layout]
    expected, found = function(make("cpu")), function(make(DEVICE))
    assert str(found.device) == DEVICE
    assert found.is_nested == expected.is_nested
    parts = (
        (expected.unbind(), found.cpu().unbind()) if found.is_nested else (expected, found.cpu())
    )
    torch.testing.assert_close(*parts)


@layouts
def test_the_race_detector_finds_accesses_to_the_parts(layout):
    side = torch.Stream(device=DEVICE)
    x = LAYOUTS[layout](DEVICE)
    with simulator.races() as found:
        with side:
            x.mul_(2)
        x.clone()
        torch.sim.synchronize(DEVICE)
    assert found


def test_copying_dense_into_sparse_raises():
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        LAYOUTS["COO"](DEVICE).copy_(DENSE.to(DEVICE))


def test_a_padded_transformer_encoder_agrees_with_the_cpu():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 5, 8)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [2]])
    with torch.inference_mode():
        want = net(x, src_key_padding_mask=padding)
        got = net.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
    torch.testing.assert_close(got.cpu(), want)
