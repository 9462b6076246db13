"""Modules, optimizers, autocast, TorchScript and transforms agree with the CPU.

The operator sweep runs single operators.
"""

import copy
import io

import pytest
import torch
from torch import nn, optim
from torch.nn import functional
from torch.utils import checkpoint
from torch.utils._pytree import tree_leaves

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = [
    pytest.mark.usefixtures("sim"),
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # TorchScript is deprecated
]

#: Functions that make a layer, and the shape of its input. Accelerators use fused recurrent cells.
LAYERS = {
    "LSTM": (lambda: nn.LSTM(8, 6, 2, bidirectional=True), (5, 4, 8)),
    "LSTM without bias": (lambda: nn.LSTM(8, 6, bias=False, batch_first=True), (5, 4, 8)),
    "GRU": (lambda: nn.GRU(8, 6, 2, bidirectional=True), (5, 4, 8)),
    "GRUCell": (lambda: nn.GRUCell(8, 6, bias=False), (3, 8)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=None), (2, 4, 8, 6)),
    "Dropout": (lambda: nn.Dropout(0.3), (3, 8)),
}
OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD fused": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "Adam fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "LBFGS": lambda p: optim.LBFGS(p, max_iter=3),
}
#: Functions under autocast, and the dtypes of their results.
AUTOCAST = {
    "matmul": (lambda x: x @ x.t(), torch.bfloat16),
    "attention": (
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        torch.bfloat16,
    ),
    "LSTM": (lambda x: nn.LSTM(4, 3).to(DEVICE)(x)[0], torch.bfloat16),
    "softmax": (lambda x: x.half().softmax(0), torch.float32),
    "sum": (lambda x: x.half().sum(), torch.float32),
    "norm": (lambda x: x.half().norm(), torch.float32),
    "promotion": (lambda x: torch.addcmul(x, x.half(), x.half()), torch.float32),
}
TRANSFORMS = {
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(lambda row: row.prod()))(x),
    "jvp": lambda x: torch.func.jvp(lambda x: x.exp() * x, (x,), (x,)),
    "hessian": lambda x: torch.func.hessian(lambda x: x.pow(3).sum())(x),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_gradients_and_buffers_of_layers(name, training):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make().train(training)
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    x = torch.randn(shape, requires_grad=True)
    assert_same(_run(on_cpu, x), _run(on_sim, x.detach().to(DEVICE).requires_grad_()))


def _run(module, x):
    torch.manual_seed(1)
    result = module(x)
    torch.autograd.backward([leaf.sum() for leaf in tree_leaves(result)])
    return result, [leaf.grad for leaf in (*module.parameters(), x)], list(module.buffers())


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_pass_gradgradcheck(name):
    make, shape = LAYERS[name]
    module = make().to(DEVICE, torch.float64)
    x = torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], x, fast_mode=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_after_three_steps(name):
    torch.manual_seed(0)
    on_cpu = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    x = torch.randn(5, 3)
    trained = [_train(net, x.to(net[0].weight.device), name) for net in (on_cpu, on_sim)]
    assert_same(*trained)


def _train(net, x, name):
    optimizer = OPTIMIZERS[name](net.parameters())

    def loss():
        optimizer.zero_grad()
        value = net(x).pow(2).mean()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(loss)
    return [parameter.detach() for parameter in net.parameters()]


def test_foreach_operators_accept_tensors_of_several_devices_and_of_the_cpu():
    xs = [torch.ones(2, device="sim:1"), torch.ones(2, device="sim:3")]
    assert [str(x.device) for x in torch._foreach_add(xs, xs)] == ["sim:1", "sim:3"]
    torch._foreach_copy_(xs, [torch.zeros(2), torch.zeros(2)])
    assert [x.tolist() for x in torch._foreach_add(xs, torch.tensor(2.0))] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_with_the_same_random_numbers(reentrant):
    net = nn.Sequential(nn.Linear(3, 20), nn.Dropout(0.5)).to(DEVICE)
    grads = []
    for run in (net, lambda x: checkpoint.checkpoint(net, x, use_reentrant=reentrant)):
        torch.manual_seed(1)
        x = torch.ones(2, 3, device=DEVICE, requires_grad=True)
        run(x).sum().backward()
        grads.append(x.grad)
    assert grads[0].equal(grads[1])


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_chooses_the_dtype_of_the_result(name):
    function, dtype = AUTOCAST[name]
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert function(torch.ones(3, 4, device=DEVICE)).dtype == dtype


def test_autocast_rejects_binary_cross_entropy():
    x = torch.full((3,), 0.5, device=DEVICE)
    with torch.autocast("sim"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        functional.binary_cross_entropy(x, x)


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


def _convolutional():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(features, nn.Linear(64, 5))


def _images():
    return torch.linspace(-1, 1, 2 * 3 * 36).reshape(2, 3, 6, 6).sin()


def test_results_and_gradients_of_a_scripted_module():
    on_cpu, on_sim = (torch.jit.script(_convolutional()) for _ in range(2))
    on_sim.to(DEVICE)
    for _ in range(3):  # the executor optimizes after profiling runs
        expected, actual = on_cpu(_images()), on_sim(_images().to(DEVICE))
        assert_same(expected, actual)
        expected.sum().backward()
        actual.sum().backward()
    for x, y in zip(on_cpu.parameters(), on_sim.parameters(), strict=True):
        assert_same(x.grad, y.grad)


@pytest.mark.parametrize(
    ("map_location", "device"), [(None, DEVICE), ("sim:1", "sim:1"), ("cpu", "cpu")]
)
def test_a_saved_script_loads_on_map_location(map_location, device):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(_convolutional().to(DEVICE)), file)
    file.seek(0)
    net = torch.jit.load(file, map_location=map_location)
    assert {str(value.device) for value in net.state_dict().values()} == {device}
    assert str(net(_images().to(device)).device) == device


def test_results_and_gradients_of_a_compiled_module():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).to(DEVICE)
    x = torch.randn(5, 3, device=DEVICE)
    results = []
    for run in (net, torch.compile(net, backend="aot_eager")):
        net.zero_grad()
        result = run(x)
        result.sum().backward()
        results.append([result, net[0].weight.grad.clone()])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functional_transforms(name):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    expected, actual = TRANSFORMS[name](x), TRANSFORMS[name](x.to(DEVICE))
    assert_same([x.contiguous() for x in expected], [x.contiguous() for x in actual])
