"""Operators give on a simulated device what they give on the CPU, gradients included."""

import pytest
import torch

from spec_tests.meta_tests.simulator_tables import OPERATORS
from spec_tests.meta_tests.simulator_tables.agreement import assert_same, assert_same_call

pytestmark = pytest.mark.usefixtures("sim")

#: Types, and what they are converted to before they are compared.
TYPES = "float16 bfloat16 float32 float64 complex64 complex128 bool uint8 int8 int16 int32 int64"
FLOATS = ("float16", "bfloat16", "float64", "complex64", "complex128")
DEVICE = "sim:2"


def drawn(draws, seed=0):
    torch.manual_seed(seed)
    return [draw() for draw in draws]


@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_gradients_agree_with_the_cpu(name):
    function, draws = OPERATORS[name]
    assert_same_call(function, drawn(draws))


@pytest.mark.parametrize("name", [name for name in OPERATORS if "view" not in name])
def test_strided_inputs_agree_with_the_cpu(name):
    function, draws = OPERATORS[name]
    inputs = [x.mT.contiguous().mT if x.dim() > 1 else x for x in drawn(draws, seed=1)]
    assert_same_call(function, inputs)


def test_there_are_at_least_one_hundred_and_fifty():
    assert len(OPERATORS) >= 150


@pytest.mark.parametrize("name", TYPES.split())
def test_every_type_is_created_copied_and_computed(name):
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    x = torch.randint(0, 2, (3, 4)).to(dtype)

    def compute(x):
        y = torch.cat([x, x.flip(0)]).t()
        y[0] = 1
        return y, y + y, y * y, y == 1, y.sum(), y.any(), y[y == 1], y.to(torch.complex128)

    with torch.no_grad():
        assert_same(compute(x.clone()), compute(x.to(DEVICE)))
    assert torch.zeros(2, dtype=dtype, device=DEVICE).cpu().equal(torch.zeros(2, dtype=dtype))


@pytest.mark.parametrize("name", FLOATS)
def test_every_floating_type_has_gradients(name):
    torch.manual_seed(0)
    x, y = (torch.randn(3, 3, dtype=getattr(torch, name)) for _ in range(2))
    assert_same_call(lambda x, y: ((x @ y) * x + y).sum(0), [x, y])


def test_half_complex_is_copied_and_added():
    with pytest.warns(UserWarning, match="ComplexHalf"):
        x = torch.ones(3, dtype=torch.complex32)
    assert_same(x + x, x.to(DEVICE) + x.to(DEVICE))


def test_second_derivatives_agree_with_numbers():
    def function(x, w):
        return torch.nn.functional.conv2d(x, w).tanh().flatten(1).softmax(1)

    sizes = ((1, 2, 3, 3), (2, 2, 2, 2))
    inputs = [
        torch.randn(size, dtype=torch.float64, device=DEVICE, requires_grad=True) for size in sizes
    ]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)
