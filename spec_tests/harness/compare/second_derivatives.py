"""Compare second derivatives with numerical ones."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.autograd import gradgradcheck

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.traverse import tensors

__all__ = ["pass_gradgradcheck"]


def pass_gradgradcheck(function: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Return whether ``gradgradcheck`` accepts the second derivatives of all outputs.

    The gradients of the outputs are made on the CPU. By default ``gradgradcheck`` draws them on
    the devices, and a back end may lack random numbers in double precision.
    """
    outputs = [tensor for _, tensor in tensors(function(*inputs), "output")]
    if not all(output.requires_grad for output in outputs):
        return False
    gradients = [cotangent(output).requires_grad_() for output in outputs]
    passes: bool = gradgradcheck(function, inputs, gradients)
    return passes
