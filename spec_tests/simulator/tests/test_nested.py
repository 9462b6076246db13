"""Nested tensors, which torch.nn.TransformerEncoder creates from padded batches."""

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.usefixtures("sim"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
]

DEVICE = "sim:2"
COMPONENTS = (torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3))
FUNCTIONS = {
    "to_padded_tensor": lambda n: n.to_padded_tensor(-1.0),
    "doubled": lambda n: (n * 2).to_padded_tensor(0.0),
    "added": lambda n: (n + n).to_padded_tensor(0.0),
    "softmax": lambda n: torch.softmax(n, -1).to_padded_tensor(0.0),
    "linear": lambda n: nn.functional.linear(
        n, torch.ones(2, 3, device=n.device)
    ).to_padded_tensor(0.0),
    "unbind": lambda n: torch.cat(n.unbind()),
    "cloned": lambda n: n.clone().to_padded_tensor(0.0),
    "converted": lambda n: n.to(torch.float64).to_padded_tensor(0.0),
}


def nested(device=DEVICE):
    return torch.nested.nested_tensor(list(COMPONENTS), device=device)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_the_cpu(name):
    result = FUNCTIONS[name](nested())
    assert str(result.device) == DEVICE
    torch.testing.assert_close(result.cpu(), FUNCTIONS[name](nested("cpu")))


@pytest.mark.parametrize(
    ("source", "destination"), [("cpu", "sim:1"), ("sim:1", "sim:3"), ("sim:3", "cpu")]
)
def test_copies_between_devices_share_no_memory(source, destination):
    x = nested(source)
    y = x.to(destination)
    x.mul_(0)
    assert str(y.device) == destination
    for want, got in zip(COMPONENTS, y.unbind(), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("destination", ["cpu", "sim:2", "sim:3"])
@pytest.mark.parametrize("make", [torch.empty_like, torch.zeros_like, torch.ones_like])
def test_like_factories_create_tensors_on_the_given_device(make, destination):
    like = make(nested(), device=destination)
    assert [(str(row.device), row.shape) for row in like.unbind()] == [
        (destination, row.shape) for row in COMPONENTS
    ]


def test_backward_computes_gradients_of_the_component_tensors():
    rows = [row.to(DEVICE).requires_grad_() for row in COMPONENTS]
    torch.nested.as_nested_tensor(rows).to_padded_tensor(0.0).mul(3).sum().backward()
    for row in rows:
        assert str(row.grad.device) == DEVICE
        assert (row.grad == 3).all()


def test_transformer_encoder_with_padding_agrees_with_the_cpu():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 5, 8)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [2]])
    with torch.inference_mode():
        want = net(x, src_key_padding_mask=padding)
        got = net.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
    torch.testing.assert_close(got.cpu(), want)
