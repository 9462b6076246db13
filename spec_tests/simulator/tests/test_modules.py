"""Double backward of recurrent layers, lists of tensors, and autocast.

The operator sweep runs single operators, the chapters run modules.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"
#: Functions under autocast, and the dtypes of their results.
AUTOCAST = {
    "matmul": (lambda x: x @ x.t(), torch.bfloat16),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x), torch.bfloat16),
    "LSTM": (lambda x: nn.LSTM(4, 3).to(DEVICE)(x)[0], torch.bfloat16),
    "softmax": (lambda x: x.half().softmax(0), torch.float32),
    "sum": (lambda x: x.half().sum(), torch.float32),
    "norm": (lambda x: x.half().norm(), torch.float32),
    "promotion": (lambda x: torch.addcmul(x, x.half(), x.half()), torch.float32),
}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_pass_gradgradcheck(kind):
    module = kind(8, 6, 2, bidirectional=True).to(DEVICE, torch.float64)
    x = torch.randn(5, 4, 8, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], x, fast_mode=True)


def test_foreach_operators_accept_tensors_of_several_devices_and_of_the_cpu():
    xs = [torch.ones(2, device="sim:1"), torch.ones(2, device="sim:3")]
    assert [str(x.device) for x in torch._foreach_add(xs, xs)] == ["sim:1", "sim:3"]
    torch._foreach_copy_(xs, [torch.zeros(2), torch.zeros(2)])
    assert [x.tolist() for x in torch._foreach_add(xs, torch.tensor(2.0))] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_chooses_the_dtype_of_the_result(name):
    function, dtype = AUTOCAST[name]
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert function(torch.ones(3, 4, device=DEVICE)).dtype == dtype


def test_autocast_of_the_cpu_does_not_affect_sim():
    x = torch.randn(40, 3, device=DEVICE)
    expected = torch.ops.aten._cdist_forward(x, x.flip(0), 2.0, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ops.aten._cdist_forward(x, x.flip(0), 2.0, None).equal(expected)


def test_grad_scaler_unscales_gradients_and_skips_infinite_steps():
    net = nn.Linear(2, 1, bias=False).to(DEVICE)
    scaler = torch.amp.GradScaler("sim", init_scale=8.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for factor, moved in ((1.0, 1.0), (float("inf"), 0.0)):
        before = net.weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(net(torch.full((1, 2), factor, device=DEVICE)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(before - net.weight, torch.full_like(before, moved))
    assert scaler.get_scale() == 4.0
