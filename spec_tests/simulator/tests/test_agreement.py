"""The assertions that compare sim with the CPU detect each difference."""

import pytest
import torch

from spec_tests.simulator.tests.agreement import DEVICE, assert_same, assert_same_call

pytestmark = pytest.mark.usefixtures("sim")

X = torch.arange(6.0).reshape(2, 3) + 1
Z = torch.complex(X, X)
#: For each property: a CPU result, and a function that returns the same result on sim except for
#: this property.
DIFFERENT = {
    "numbers": (X, lambda: X.to(DEVICE) + 0.1),
    "type": (X, lambda: X.to(DEVICE).double()),
    "shape": (X, lambda: X.to(DEVICE)[:, :2]),
    "strides": (X, lambda: X.t().contiguous().t().to(DEVICE)),
    "device": (X, lambda: X.to("sim:1")),
    "on the host": (X, lambda: X),
    "requires_grad": (X, lambda: X.to(DEVICE).requires_grad_()),
    "lazy conjugation": (Z.conj(), lambda: Z.to(DEVICE).conj().resolve_conj()),
    "number of results": ((X, X), lambda: (X.to(DEVICE),)),
    "Python number": (3, lambda: 4),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_assert_same_detects_difference(name):
    expected, make = DIFFERENT[name]
    with pytest.raises(AssertionError):
        assert_same(expected, make())


def test_assert_same_call_detects_different_gradients():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad if grad.is_cpu else grad * 1.1

    with pytest.raises(AssertionError):
        assert_same_call(Wrong.apply, [X])


def test_both_assertions_accept_equal_results():
    assert_same((X, 3), (X.to(DEVICE), 3))
    assert_same_call(lambda x: x * 2, [X])
