"""Modules give on a simulated device what they give on the CPU, gradients and buffers included."""

import copy

import pytest
import torch
from torch import nn

from spec_tests.meta_tests.simulator_tables.agreement import DEVICE, assert_same
from spec_tests.meta_tests.simulator_tables.layers import LAYERS

pytestmark = pytest.mark.usefixtures("sim", "one_thread")


@pytest.fixture
def one_thread():
    """One intra-op thread on the CPU, as on the simulator: sums have the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(module, inputs, training):
    module.train(training)
    result = module(*inputs)
    losses = [leaf.sum() for leaf in torch.utils._pytree.tree_leaves(result) if leaf.requires_grad]
    torch.autograd.backward(losses)
    leaves = [*module.parameters(), *(x for x in inputs if x.requires_grad)]
    return result, [leaf.grad for leaf in leaves if leaf.grad is not None], list(module.buffers())


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_gradients_and_buffers_agree_with_the_cpu(name, training):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    here = make()
    there = copy.deepcopy(here).to(DEVICE)
    inputs = [draw() for draw in draws]
    if not training:
        inputs = [x.requires_grad_(x.is_floating_point()) for x in inputs]
    moved = [x.detach().to(DEVICE).requires_grad_(x.requires_grad) for x in inputs]
    assert_same(run(here, inputs, training), run(there, moved, training))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "Conv2d", "MultiheadAttention", "BatchNorm1d"])
def test_second_derivatives_agree_with_numbers(name):
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
def test_layers_of_other_types_agree_with_the_cpu(name, dtype):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    here = make().to(dtype)
    there = copy.deepcopy(here).to(DEVICE)
    inputs = [draw().to(dtype) for draw in draws]
    moved = [x.to(DEVICE) for x in inputs]
    assert_same(run(here, inputs, training=True), run(there, moved, training=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_fused_cells_of_half_types_are_as_near_as_their_rounding(name, dtype):
    make, draws = LAYERS[name]
    torch.manual_seed(0)
    here = make().to(dtype)
    inputs = [draw().to(dtype) for draw in draws]
    expected, _ = here(*inputs)
    actual, _ = here.to(DEVICE)(*(x.to(DEVICE) for x in inputs))
    # The values are below one, and about eight roundings apart.
    atol = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=atol)


def test_fast_path_of_inference_agrees_with_the_cpu():
    torch.manual_seed(0)
    here = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    there = copy.deepcopy(here).to(DEVICE)
    x = torch.randn(2, 5, 8)
    with torch.inference_mode():
        assert_same(here(x), there(x.to(DEVICE)))
