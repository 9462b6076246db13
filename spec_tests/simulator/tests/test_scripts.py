"""TorchScript, fx, functional transforms and torch.compile on a simulated device."""

import copy
import io

import pytest
import torch
from torch import nn

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = [
    pytest.mark.usefixtures("sim"),
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # TorchScript is deprecated
]


def convolutional():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(features, nn.Linear(64, 5))


def images():
    return torch.linspace(-1, 1, 2 * 3 * 36).reshape(2, 3, 6, 6).sin()


def test_scripted_module_agrees_with_the_cpu():
    on_cpu, on_sim = (torch.jit.script(convolutional()) for _ in range(2))
    on_sim.to(DEVICE)
    for _ in range(3):  # the executor optimizes after profiling runs
        expected, actual = on_cpu(images()), on_sim(images().to(DEVICE))
        assert_same(expected, actual)
        expected.sum().backward()
        actual.sum().backward()
    for x, y in zip(on_cpu.parameters(), on_sim.parameters(), strict=True):
        assert_same(x.grad, y.grad)


def test_moving_a_scripted_module_moves_parameters_and_gradients():
    net = torch.jit.script(nn.Linear(3, 2))
    net(torch.ones(1, 3)).sum().backward()
    net.to(DEVICE)
    assert str(net.weight.device) == str(net.weight.grad.device) == DEVICE


def test_frozen_module_agrees_with_the_cpu():
    net = convolutional().eval()
    frozen = torch.jit.freeze(torch.jit.script(copy.deepcopy(net).to(DEVICE)))
    assert_same(net(images()).detach(), frozen(images().to(DEVICE)).detach())


@pytest.mark.parametrize(
    ("map_location", "device"), [(None, DEVICE), ("sim:1", "sim:1"), ("cpu", "cpu")]
)
def test_saved_script_loads_on_map_location(map_location, device):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(convolutional().to(DEVICE)), file)
    file.seek(0)
    net = torch.jit.load(file, map_location=map_location)
    assert {str(value.device) for value in net.state_dict().values()} == {device}
    assert str(copy.deepcopy(net)(images().to(device)).device) == device


def test_script_creates_tensors_on_the_named_device():
    @torch.jit.script
    def function(x):
        return torch.zeros(2, device="sim:1") + x.to("sim:1").sum()

    for _ in range(3):
        assert function(torch.ones(2, device=DEVICE)).tolist() == [2, 2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_module_agrees_with_the_module(backend):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).to(DEVICE)
    x = torch.randn(5, 3, device=DEVICE)
    expected = net(x)
    expected.sum().backward()
    grad = net[0].weight.grad.clone()
    net.zero_grad()
    actual = torch.compile(net, backend=backend)(x)
    actual.sum().backward()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(net[0].weight.grad, grad)


TRANSFORMS = {
    "vmap": lambda x: torch.vmap(lambda row: row.sin() @ x.t())(x),
    "grad": lambda x: torch.func.grad(lambda x: (x @ x.t()).sum())(x),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(lambda row: row.prod()))(x),
    "jvp": lambda x: torch.func.jvp(lambda x: x.exp() * x, (x,), (x,)),
    "vjp": lambda x: torch.func.vjp(lambda x: x.exp() * x, x)[1](x),
    "jacrev": lambda x: torch.func.jacrev(lambda x: x.sin())(x),
    "jacfwd": lambda x: torch.func.jacfwd(lambda x: x.cumsum(0))(x),
    "hessian": lambda x: torch.func.hessian(lambda x: x.pow(3).sum())(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functional_transforms_agree_with_the_cpu(name):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    expected, actual = TRANSFORMS[name](x), TRANSFORMS[name](x.to(DEVICE))
    for want, got in zip(expected, actual, strict=True):
        torch.testing.assert_close(got.cpu(), want)
