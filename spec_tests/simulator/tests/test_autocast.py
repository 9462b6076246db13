"""Autocast on sim casts the operators that autocast casts on every accelerator."""

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"
half_dtypes = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
LOWER_PRECISION = {
    "matmul": lambda x: x @ x.t(),
    "conv1d": lambda x: nn.Conv1d(3, 2, 2).to(DEVICE)(x[None]),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "LSTM": lambda x: nn.LSTM(4, 3).to(DEVICE)(x)[0],
    "GRUCell": lambda x: nn.GRUCell(4, 3).to(DEVICE)(x),
}
FLOAT32 = {
    "softmax": lambda x: x.half().softmax(0),
    "sum": lambda x: x.half().sum(),
    "norm": lambda x: x.half().norm(),
    "mse_loss": lambda x: functional.mse_loss(x.half(), x.half()),
    "promotion": lambda x: torch.addcmul(x, x.half(), x.half()),
    "add": lambda x: x + 1,
}


@half_dtypes
@pytest.mark.parametrize("name", LOWER_PRECISION)
def test_autocast_lowers_precision_of_products(name, half):
    with torch.autocast("sim", dtype=half):
        assert LOWER_PRECISION[name](torch.ones(3, 4, device=DEVICE)).dtype == half


@pytest.mark.parametrize("name", FLOAT32)
def test_autocast_runs_sensitive_operators_in_float32(name):
    with torch.autocast("sim"):
        assert FLOAT32[name](torch.ones(3, 4, device=DEVICE)).dtype == torch.float32


@half_dtypes
def test_gradients_have_the_dtype_of_the_parameters(half):
    torch.manual_seed(0)
    net, x = nn.Linear(4, 3), torch.randn(2, 4)
    net(x).sum().backward()
    expected = net.weight.grad.clone()
    net.zero_grad()
    with torch.autocast("sim", dtype=half):
        net.to(DEVICE)(x.to(DEVICE)).sum().backward()
    assert net.weight.grad.dtype == torch.float32
    # The inputs and the sum are rounded to half precision.
    atol = 4 * torch.finfo(half).eps * expected.abs().max().item()
    torch.testing.assert_close(net.weight.grad.cpu(), expected, rtol=0, atol=atol)


def test_autocast_affects_only_its_device_type():
    x = torch.ones(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x.to(DEVICE) @ x.to(DEVICE)).dtype == torch.float32
    with torch.autocast("sim"):
        assert (x @ x).dtype == torch.float32


def test_cpu_autocast_does_not_affect_matmul_inside_sim_kernels():
    x = torch.randn(40, 3, device=DEVICE)
    expected = torch.ops.aten._cdist_forward(x, x.flip(0), 2.0, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ops.aten._cdist_forward(x, x.flip(0), 2.0, None).equal(expected)


def test_autocast_rejects_binary_cross_entropy():
    x = torch.full((3,), 0.5, device=DEVICE)
    with torch.autocast("sim"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        functional.binary_cross_entropy(x, x)


def test_grad_scaler_unscales_gradients_and_skips_infinite_steps():
    net = nn.Linear(2, 1, bias=False).to(DEVICE)
    before = net.weight.detach().clone()
    scaler = torch.amp.GradScaler("sim", init_scale=8.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for factor, moved in ((1.0, 1.0), (float("inf"), 0.0)):
        optimizer.zero_grad()
        scaler.scale(net(torch.full((1, 2), factor, device=DEVICE)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(before - net.weight, torch.full_like(before, moved))
        before = net.weight.detach().clone()
    assert scaler.get_scale() == 4.0
