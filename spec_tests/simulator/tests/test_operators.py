"""Dtypes, gradients and second derivatives on a simulated device agree with the CPU.

``test_database.py`` compares all operators.
"""

import pytest
import torch

from spec_tests.simulator.tests.agreement import assert_same, assert_same_call

pytestmark = pytest.mark.usefixtures("sim")

#: Dtypes that sim supports.
DTYPES = "float16 bfloat16 float32 float64 complex64 complex128 bool uint8 int8 int16 int32 int64"
DIFFERENTIABLE_DTYPES = ("float16", "bfloat16", "float64", "complex64", "complex128")
DEVICE = "sim:2"


@pytest.mark.parametrize("name", DTYPES.split())
def test_every_dtype_supports_creation_copy_and_arithmetic(name):
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


@pytest.mark.parametrize("name", DIFFERENTIABLE_DTYPES)
def test_every_floating_dtype_has_gradients(name):
    torch.manual_seed(0)
    x, y = (torch.randn(3, 3, dtype=getattr(torch, name)) for _ in range(2))
    assert_same_call(lambda x, y: ((x @ y) * x + y).sum(0), [x, y])


def test_complex_half_supports_copy_and_addition():
    with pytest.warns(UserWarning, match="ComplexHalf"):
        x = torch.ones(3, dtype=torch.complex32)
    assert_same(x + x, x.to(DEVICE) + x.to(DEVICE))


def test_convolution_passes_gradcheck_and_gradgradcheck():
    def function(x, w):
        return torch.nn.functional.conv2d(x, w).tanh().flatten(1).softmax(1)

    sizes = ((1, 2, 3, 3), (2, 2, 2, 2))
    inputs = [
        torch.randn(size, dtype=torch.float64, device=DEVICE, requires_grad=True) for size in sizes
    ]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)
