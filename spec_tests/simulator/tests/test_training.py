"""Optimizers, foreach operators and quantization observers on sim agree with the CPU."""

import copy

import pytest
import torch
from torch import nn, optim
from torch.ao.quantization import (
    FakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
)

from spec_tests.simulator.tests.agreement import DEVICE, assert_same, copy_to_device

pytestmark = pytest.mark.usefixtures("sim")

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD without foreach": lambda p: optim.SGD(
        p, lr=0.1, nesterov=True, momentum=0.9, foreach=False
    ),
    "SGD fused": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "Adam without foreach": lambda p: optim.Adam(p, lr=0.1, foreach=False),
    "Adam fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "RMSprop": optim.RMSprop,
    "Adagrad": optim.Adagrad,
    "Adadelta": optim.Adadelta,
    "NAdam": optim.NAdam,
    "LBFGS": lambda p: optim.LBFGS(p, max_iter=3),
}
FOREACH = {
    "add": lambda xs: torch._foreach_add(xs, 1),
    "add scalar tensor": lambda xs: torch._foreach_add(xs, torch.tensor(2.0)),
    "mul": lambda xs: torch._foreach_mul(xs, xs),
    "mul by list": lambda xs: torch._foreach_mul(xs, [2.0, 3.0]),
    "norm": torch._foreach_norm,
    "max": torch._foreach_max,
    "sqrt of abs": lambda xs: torch._foreach_sqrt(torch._foreach_abs(xs)),
    "addcdiv": lambda xs: torch._foreach_addcdiv(xs, xs, torch._foreach_exp(xs), 2.0),
    "lerp": lambda xs: torch._foreach_lerp(xs, torch._foreach_neg(xs), 0.3),
    "copy": lambda xs: _apply_in_place(torch._foreach_copy_, xs, [x.cpu() * 2 for x in xs]),
    "zero": lambda xs: _apply_in_place(torch._foreach_zero_, xs),
}


def _apply_in_place(change, xs, *args):
    changed = [x.clone() for x in xs]
    change(changed, *args)
    return changed


def train(net, x, make):
    optimizer = make(net.parameters())

    def loss():
        optimizer.zero_grad()
        value = net(x).pow(2).mean()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(loss)
    restored = make(net.parameters())
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    restored.step(loss)
    return [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_agree_with_the_cpu(name):
    torch.manual_seed(0)
    on_cpu = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    x = torch.randn(5, 3)
    before = copy.deepcopy(on_cpu[0].weight)
    expected = train(on_cpu, x, OPTIMIZERS[name])
    actual = train(on_sim, x.to(DEVICE), OPTIMIZERS[name])
    assert_same(expected, actual)
    assert not before.equal(on_cpu[0].weight)


def test_sparse_adam_agrees_with_the_cpu():
    on_cpu = nn.Embedding(4, 2, sparse=True)
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    words = torch.tensor([1, 2, 1])
    for net, x in ((on_cpu, words), (on_sim, words.to(DEVICE))):
        optimizer = optim.SparseAdam(net.parameters())
        net(x).sum().backward()
        optimizer.step()
    assert_same(on_cpu.weight, on_sim.weight)


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_operators_agree_with_the_cpu(name):
    xs = [torch.randn(3), torch.randn(2, 2)]
    assert_same(FOREACH[name](xs), FOREACH[name]([copy_to_device(x) for x in xs]))


def test_foreach_operators_accept_several_devices():
    xs = [torch.ones(2, device="sim:1"), torch.ones(2, device="sim:3")]
    sums = torch._foreach_add(xs, xs)
    assert [str(x.device) for x in sums] == ["sim:1", "sim:3"]
    assert [x.tolist() for x in sums] == [[2, 2], [2, 2]]


def test_clip_grad_norm_clips_gradients():
    net = nn.Linear(3, 2).to(DEVICE)
    net(torch.ones(1, 3, device=DEVICE)).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    norm = nn.utils.get_total_norm([x.grad for x in net.parameters()])
    assert norm.item() == pytest.approx(0.1, rel=1e-4)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert str(vector.device) == DEVICE


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:must run observer before")
@pytest.mark.parametrize(
    "make",
    [MinMaxObserver, PerChannelMinMaxObserver, HistogramObserver, FakeQuantize],
    ids=lambda make: make.__name__,
)
def test_quantization_observers_agree_with_the_cpu(make):
    x = torch.randn(4, 3)
    on_cpu, on_sim = make(), make().to(DEVICE)
    assert_same(on_cpu(x), on_sim(x.to(DEVICE)))
    expected = [value for value in on_cpu.state_dict().values() if value is not None]
    actual = [value for value in on_sim.state_dict().values() if value is not None]
    assert_same(expected, actual)


def test_one_backward_computes_the_gradients_of_models_on_all_devices():
    nets = [nn.Linear(3, 1).to(f"sim:{index}") for index in range(4)]
    outputs = [net(torch.ones(2, 3, device=f"sim:{i}")).to("sim:0") for i, net in enumerate(nets)]
    torch.stack(outputs).sum().backward()
    for index, net in enumerate(nets):
        assert str(net.weight.grad.device) == f"sim:{index}"
        assert net.weight.grad.tolist() == [[2, 2, 2]]
