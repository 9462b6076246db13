"""Backward passes, which run on the streams of their forward passes."""

import torch
from torch import Tensor

from .rows import current, device, grad_of, program, send, stream


def _leaf() -> Tensor:
    return torch.zeros(4, device=device(0), requires_grad=True)


@program("backward", late=False)
def gradients_are_ready_on_the_stream_that_called_backward(right: bool) -> Tensor:
    leaf, side = _leaf(), stream(0)
    weights = send(0)
    side.wait_stream(current(0))
    weights.record_stream(side)
    with side:
        torch.autograd.backward((leaf * weights).sum())
    if right:
        current(0).wait_stream(side)
    grad_of(leaf).record_stream(current(0))
    return grad_of(leaf)


@program("backward")
def backward_waits_for_the_stream_that_called_it(right: bool) -> Tensor:
    leaf, side = _leaf(), stream(0)
    result = leaf * 1
    with side:
        grad = send(0)
        if right:
            torch.autograd.backward(result, grad)
    if not right:
        torch.autograd.backward(result, grad)
    current(0).wait_stream(side)
    return grad_of(leaf)


@program("backward", late=False)
def a_forward_pass_on_a_side_stream_is_differentiated_from_any(right: bool) -> Tensor:
    leaf, side = _leaf(), stream(0)
    weights = send(0)
    side.wait_stream(current(0))
    weights.record_stream(side)
    with side:
        result = (leaf * weights).sum()
    if right:
        current(0).wait_stream(side)
    torch.autograd.backward(result * 1)
    return grad_of(leaf)


@program("backward")
def gradients_cross_devices_in_order(right: bool) -> Tensor:
    leaf, side = _leaf(), stream(1)
    with side:
        weights = send(1)
    if right:
        current(1).wait_stream(side)
    weights.record_stream(current(1))
    torch.autograd.backward((leaf.to(device(1)) * weights).sum())
    return grad_of(leaf)
