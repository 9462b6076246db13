"""The same call on the CPU and on a simulated device, compared.

The device is not the current one, and tensors keep their strides on the way to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

__all__ = ["DEVICE", "assert_same", "assert_same_call", "leaves_of", "on_device"]

DEVICE = "sim:2"
Function: TypeAlias = Callable[..., Any]


def on_device(tensor: Tensor) -> Tensor:
    """Copy ``tensor`` to the device as a leaf: same strides, same demand for a gradient."""
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE
    ).copy_(tensor.detach())
    return copy.requires_grad_(tensor.requires_grad)


def leaves_of(result: object) -> list[Tensor]:
    """List the tensors of a result, which may be nested."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def assert_same(expected: object, actual: object) -> None:
    """Compare numbers, types, shapes, strides and lazy bits; the second is on the device."""
    left, right = tree_leaves(expected), tree_leaves(actual)
    assert len(left) == len(right)
    for want, got in zip(left, right, strict=True):
        if isinstance(want, Tensor):
            _assert_same_tensor(want, got)
        else:
            assert want == got


def _assert_same_tensor(want: Tensor, got: Tensor) -> None:
    assert str(got.device) == DEVICE, f"on {got.device}"
    assert want.requires_grad == got.requires_grad
    assert (want.is_conj(), want.is_neg()) == (got.is_conj(), got.is_neg())
    torch.testing.assert_close(got.detach().cpu(), want.detach(), equal_nan=True)
    if want.layout == torch.strided:
        assert want.stride() == got.stride(), f"strides {got.stride()}, not {want.stride()}"


def assert_same_call(function: Function, inputs: Sequence[Tensor]) -> None:
    """Compare results of ``function`` and the gradients of every input, on CPU and device."""
    here = [_as_leaf(tensor) for tensor in inputs]
    there = [on_device(tensor) for tensor in here]
    expected, actual = function(*here), function(*there)
    assert_same(expected, actual)
    assert_same(_gradients(expected, here), _gradients(actual, there))


def _as_leaf(tensor: Tensor) -> Tensor:
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().clone().requires_grad_(differentiable)


def _gradients(result: object, inputs: Sequence[Tensor]) -> list[Tensor]:
    results = [leaf for leaf in leaves_of(result) if leaf.requires_grad]
    if results:
        torch.autograd.backward(results, [_direction(leaf) for leaf in results])
    return [tensor.grad for tensor in inputs if tensor.grad is not None]


def _direction(tensor: Tensor) -> Tensor:
    """A gradient to start from, neither constant nor of a convenient sign."""
    ramp = torch.linspace(-1, 2, tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
    return ramp.to(tensor.dtype).to(tensor.device)
