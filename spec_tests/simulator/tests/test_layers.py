"""Modules on a simulated device have the outputs, gradients and buffers of the CPU."""

import copy

import pytest
import torch
from torch import nn

from spec_tests.simulator.tests.agreement import DEVICE, assert_same
from spec_tests.simulator.tests.layers import LAYERS

pytestmark = pytest.mark.usefixtures("sim", "one_thread")


@pytest.fixture
def one_thread():
    """Use one intra-op thread on the CPU, so that sums have the same order as on sim."""
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(previous)


def run(module, inputs, training):
    module.train(training)
    result = module(*inputs)
    losses = [leaf.sum() for leaf in torch.utils._pytree.tree_leaves(result) if leaf.requires_grad]
    torch.autograd.backward(losses)
    leaves = [*module.parameters(), *(x for x in inputs if x.requires_grad)]
    return result, [leaf.grad for leaf in leaves if leaf.grad is not None], list(module.buffers())


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_gradients_and_buffers_agree_with_the_cpu(name, training):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make()
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    inputs = [draw() for draw in draws]
    if not training:
        inputs = [x.requires_grad_(x.is_floating_point()) for x in inputs]
    device_inputs = [x.detach().to(DEVICE).requires_grad_(x.requires_grad) for x in inputs]
    assert_same(run(on_cpu, inputs, training), run(on_sim, device_inputs, training))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "Conv2d", "MultiheadAttention", "BatchNorm1d"])
def test_layers_pass_gradcheck_and_gradgradcheck(name):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    module = make().to(DEVICE, torch.float64)
    inputs = [draw()[:2].to(DEVICE, torch.float64).requires_grad_() for draw in draws]

    def function(*inputs):
        return torch.utils._pytree.tree_leaves(module(*inputs))[0]

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["Conv2d", "BatchNorm1d", "Linear", "LayerNorm"])
def test_layers_of_other_dtypes_agree_with_the_cpu(name, dtype):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make().to(dtype)
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    inputs = [draw().to(dtype) for draw in draws]
    device_inputs = [x.to(DEVICE) for x in inputs]
    assert_same(run(on_cpu, inputs, training=True), run(on_sim, device_inputs, training=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_fused_cells_in_half_precision_agree_within_rounding(name, dtype):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make().to(dtype)
    inputs = [draw().to(dtype) for draw in draws]
    expected, _ = on_cpu(*inputs)
    actual, _ = on_cpu.to(DEVICE)(*(x.to(DEVICE) for x in inputs))
    # The values are below 1. The results differ by at most about eight roundings.
    atol = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=atol)


def test_transformer_fast_path_agrees_with_the_cpu():
    torch.manual_seed(0)
    on_cpu = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    x = torch.randn(2, 5, 8)
    with torch.inference_mode():
        assert_same(on_cpu(x), on_sim(x.to(DEVICE)))
