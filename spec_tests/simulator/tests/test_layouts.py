"""Tensors that consist of several tensors: sparse (COO, CSR, CSC, BSR, BSC) and nested tensors.

The operator sweep runs operators of sparse tensors, and the chapters copy tensors of all layouts
between devices.
"""

import re

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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_race_detector_finds_accesses_to_the_parts(layout):
    side = torch.Stream(device=DEVICE)
    x = LAYOUTS[layout](DEVICE)
    with simulator.races() as found:
        with side:
            x.mul_(2)
        x.clone()
        torch.sim.synchronize(DEVICE)
    assert found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_operator_that_a_layout_lacks_is_refused_with_the_layout(layout):
    text = f"for the sim device ({'nested' if layout == 'nested' else 'sparse'} tensors)"
    with pytest.raises(NotImplementedError, match=re.escape(text)):
        LAYOUTS[layout](DEVICE).median()


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
