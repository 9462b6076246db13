"""Compare a call on the CPU with the same call on a simulated device.

The device is not the current device. Copies on the device have the strides of the originals.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

__all__ = ["DEVICE", "assert_same", "assert_same_call", "copy_to_device", "tensor_leaves"]

DEVICE = "sim:2"
Function: TypeAlias = Callable[..., Any]


def copy_to_device(tensor: Tensor) -> Tensor:
    """Copy ``tensor`` to ``DEVICE``, as a leaf with the same strides and requires_grad."""
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE
    ).copy_(tensor.detach())
    return copy.requires_grad_(tensor.requires_grad)


def tensor_leaves(result: object) -> list[Tensor]:
    """Return the tensors of a pytree."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def assert_same(expected: object, actual: object) -> None:
    """Check that ``actual`` is on ``DEVICE`` and equals ``expected``, strides included."""
    wanted, found = tree_leaves(expected), tree_leaves(actual)
    assert len(wanted) == len(found)
    for want, got in zip(wanted, found, strict=True):
        if isinstance(want, Tensor):
            _assert_same_tensor(want, got)
        else:
            assert want == got


def _assert_same_tensor(expected: Tensor, actual: Tensor) -> None:
    assert str(actual.device) == DEVICE, f"on {actual.device}"
    assert expected.requires_grad == actual.requires_grad
    assert (expected.is_conj(), expected.is_neg()) == (actual.is_conj(), actual.is_neg())
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)
    if expected.layout == torch.strided:
        assert expected.stride() == actual.stride(), (
            f"strides {actual.stride()}, not {expected.stride()}"
        )


def assert_same_call(function: Function, inputs: Sequence[Tensor]) -> None:
    """Check that results and gradients of ``function`` are equal on the CPU and on ``DEVICE``."""
    cpu_inputs = [_clone_as_leaf(tensor) for tensor in inputs]
    device_inputs = [copy_to_device(tensor) for tensor in cpu_inputs]
    expected, actual = function(*cpu_inputs), function(*device_inputs)
    assert_same(expected, actual)
    assert_same(
        _compute_gradients(expected, cpu_inputs), _compute_gradients(actual, device_inputs)
    )


def _clone_as_leaf(tensor: Tensor) -> Tensor:
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().clone().requires_grad_(differentiable)


def _compute_gradients(result: object, inputs: Sequence[Tensor]) -> list[Tensor]:
    results = [leaf for leaf in tensor_leaves(result) if leaf.requires_grad]
    if results:
        torch.autograd.backward(results, [_output_gradient(leaf) for leaf in results])
    return [tensor.grad for tensor in inputs if tensor.grad is not None]


def _output_gradient(tensor: Tensor) -> Tensor:
    """Return a gradient for the backward pass with positive and negative values."""
    ramp = torch.linspace(-1, 2, tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
    return ramp.to(tensor.dtype).to(tensor.device)
