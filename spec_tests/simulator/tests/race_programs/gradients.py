"""Backward passes: each node runs on the stream of its forward pass."""

import torch
from torch import Tensor

from .program import (
    copy_to,
    current_stream,
    device,
    empty,
    grad_of,
    new_stream,
    pinned_tensor,
    race_program,
)


def _make_leaf() -> Tensor:
    return torch.zeros(4, device=device(0), requires_grad=True)


@race_program("backward", late_copies=False)
def gradient_is_ready_on_stream_that_called_backward(correct: bool) -> Tensor:
    leaf, side = _make_leaf(), new_stream(0)
    weights = copy_to(0)
    side.wait_stream(current_stream(0))
    weights.record_stream(side)
    with side:
        torch.autograd.backward((leaf * weights).sum())
    if correct:
        current_stream(0).wait_stream(side)
    grad_of(leaf).record_stream(current_stream(0))
    return grad_of(leaf)


@race_program("backward")
def backward_waits_for_stream_that_called_it(correct: bool) -> Tensor:
    leaf, side = _make_leaf(), new_stream(0)
    result = leaf * 1
    with side:
        grad = copy_to(0)
        if correct:
            torch.autograd.backward(result, grad)
    if not correct:
        torch.autograd.backward(result, grad)
    current_stream(0).wait_stream(side)
    return grad_of(leaf)


@race_program("backward", late_copies=False)
def stream_waits_for_forward_on_side_stream_before_backward(correct: bool) -> Tensor:
    leaf, side = _make_leaf(), new_stream(0)
    weights = copy_to(0)
    side.wait_stream(current_stream(0))
    weights.record_stream(side)
    with side:
        result = (leaf * weights).sum()
    if correct:
        current_stream(0).wait_stream(side)
    torch.autograd.backward(result * 1)
    return grad_of(leaf)


@race_program("backward")
def backward_across_devices_waits_for_saved_tensor(correct: bool) -> Tensor:
    leaf, side = _make_leaf(), new_stream(1)
    with side:
        weights = copy_to(1)
    if correct:
        current_stream(1).wait_stream(side)
    weights.record_stream(current_stream(1))
    torch.autograd.backward((leaf.to(device(1)) * weights).sum())
    return grad_of(leaf)


@race_program("backward", late_copies=False)
def side_stream_in_hook_waits_for_gradient(correct: bool) -> Tensor:
    leaf, weights, result, side = _make_leaf(), copy_to(0), empty(0), new_stream(0)
    side.wait_stream(current_stream(0))

    def copy_grad(grad: Tensor) -> None:
        if correct:
            side.wait_stream(current_stream(0))
        with side:
            result.copy_(grad)
        grad.record_stream(side)

    leaf.register_hook(copy_grad)  # type: ignore[no-untyped-call]
    torch.autograd.backward((leaf * weights).sum())
    side.synchronize()
    return result


@race_program("backward", late_copies=False)
def saved_tensor_is_not_overwritten_on_another_stream(correct: bool) -> Tensor:
    leaf, weights, side = _make_leaf(), copy_to(0), new_stream(0)
    result = (leaf * weights).sum()
    side.wait_stream(current_stream(0))
    with current_stream(0) if correct else side:
        weights.data.copy_(pinned_tensor(), non_blocking=True)
    weights.record_stream(side)
    torch.autograd.backward(result)
    return grad_of(leaf)
