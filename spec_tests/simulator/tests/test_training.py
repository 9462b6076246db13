"""Optimizers on sim agree with the CPU, and backward passes run over several devices."""

import copy

import pytest
import torch
from torch import nn, optim

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = pytest.mark.usefixtures("sim")

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD without foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "SGD fused": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "Adam fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "LBFGS": lambda p: optim.LBFGS(p, max_iter=3),
}


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


def test_foreach_operators_accept_several_devices():
    xs = [torch.ones(2, device="sim:1"), torch.ones(2, device="sim:3")]
    sums = torch._foreach_add(xs, xs)
    assert [str(x.device) for x in sums] == ["sim:1", "sim:3"]
    assert [x.tolist() for x in sums] == [[2, 2], [2, 2]]


def test_foreach_operators_accept_tensors_of_the_cpu():
    xs = [torch.zeros(2, device=DEVICE), torch.zeros(3, device=DEVICE)]
    torch._foreach_copy_(xs, [torch.ones(2), torch.ones(3)])
    assert [x.tolist() for x in xs] == [[1, 1], [1, 1, 1]]
    assert [x.tolist() for x in torch._foreach_add(xs, torch.tensor(2.0))] == [[3, 3], [3, 3, 3]]


def test_one_backward_computes_the_gradients_of_models_on_all_devices():
    nets = [nn.Linear(3, 1).to(f"sim:{index}") for index in range(4)]
    outputs = [net(torch.ones(2, 3, device=f"sim:{i}")).to("sim:0") for i, net in enumerate(nets)]
    torch.stack(outputs).sum().backward()
    for index, net in enumerate(nets):
        assert str(net.weight.grad.device) == f"sim:{index}"
        assert net.weight.grad.tolist() == [[2, 2, 2]]
