"""Layers whose operators the operator sweep does not run: recurrent and fused layers.

They have the outputs, gradients and buffers of the CPU.
"""

import copy

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = pytest.mark.usefixtures("sim", "one_thread")


class PackedLSTM(nn.Module):
    """An LSTM on a packed sequence."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x):
        """Pack the padded batch, run the LSTM and pad the outputs."""
        packed = nn.utils.rnn.pack_padded_sequence(x, [4, 3, 2, 2, 1], batch_first=True)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return padded


#: Functions that make a layer, and the shape of its input.
LAYERS = {
    "RNN": (lambda: nn.RNN(8, 6, 2, nonlinearity="relu"), (5, 4, 8)),
    "LSTM": (lambda: nn.LSTM(8, 6, 2, bidirectional=True), (5, 4, 8)),
    "LSTM without bias": (lambda: nn.LSTM(8, 6, bias=False, batch_first=True), (5, 4, 8)),
    "GRU": (lambda: nn.GRU(8, 6, 2, bidirectional=True), (5, 4, 8)),
    "GRUCell": (lambda: nn.GRUCell(8, 6, bias=False), (3, 8)),
    "packed LSTM": (PackedLSTM, (5, 4, 8)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=None), (2, 4, 8, 6)),
    "sparse Embedding": (
        lambda: nn.Sequential(nn.Linear(8, 1), ToIndex(), nn.Embedding(10, 5, sparse=True)),
        (3, 8),
    ),
}


class ToIndex(nn.Module):
    """A module that makes indices of its inputs."""

    def forward(self, x):
        """Return indices from 0 to 9."""
        return x.detach().long().abs().clamp(max=9)


@pytest.fixture
def one_thread():
    """Use one intra-op thread on the CPU, so that sums have the same order as on sim."""
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(previous)


def run(module, x, training):
    module.train(training)
    result = module(x)
    torch.autograd.backward([leaf.sum() for leaf in tree_leaves(result)])
    grads = [leaf.grad for leaf in (*module.parameters(), x) if leaf.grad is not None]
    return result, grads, list(module.buffers())


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_gradients_and_buffers_agree_with_the_cpu(name, training):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make()
    on_sim = copy.deepcopy(on_cpu).to(DEVICE)
    x = torch.randn(shape, requires_grad=True)
    device_x = x.detach().to(DEVICE).requires_grad_()
    assert_same(run(on_cpu, x, training), run(on_sim, device_x, training))


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_pass_gradcheck_and_gradgradcheck(name):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    module = make().to(DEVICE, torch.float64)
    x = torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def function(x):
        return module(x)[0]

    assert torch.autograd.gradcheck(function, x, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, x, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_fused_cells_in_half_precision_agree_within_rounding(name, dtype):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    on_cpu = make().to(dtype)
    x = torch.randn(shape).to(dtype)
    expected, _ = on_cpu(x)
    actual, _ = on_cpu.to(DEVICE)(x.to(DEVICE))
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


#: Dtypes that sim supports.
DTYPES = "float16 bfloat16 float32 float64 complex64 complex128 bool uint8 int8 int16 int32 int64"


@pytest.mark.parametrize("name", DTYPES.split())
def test_every_dtype_supports_creation_copy_and_arithmetic(name):
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    x = torch.randint(0, 2, (3, 4)).to(dtype)

    def compute(x):
        y = torch.cat([x, x.flip(0)]).t()
        y[0] = 1
        return y, y + y, y * y, y == 1, y.sum(), y.any(), y[y == 1], y.to(torch.complex128)

    assert_same(compute(x.clone()), compute(x.to(DEVICE)))
    assert torch.zeros(2, dtype=dtype, device=DEVICE).cpu().equal(torch.zeros(2, dtype=dtype))


def test_complex_half_supports_copy_and_addition():
    with pytest.warns(UserWarning, match="ComplexHalf"):
        x = torch.ones(3, dtype=torch.complex32)
    assert_same(x + x, x.to(DEVICE) + x.to(DEVICE))
