"""Backward passes, which run on the streams of their forward passes."""

import torch
from torch import Tensor

from .rows import current, device, empty, grad_of, pinned, program, send, stream


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


@program("backward", late=False)
def a_hook_s_side_stream_waits_for_the_gradient(right: bool) -> Tensor:
    leaf, weights, result, side = _leaf(), send(0), empty(0), stream(0)
    side.wait_stream(current(0))

    def keep(grad: Tensor) -> None:
        if right:
            side.wait_stream(current(0))
        with side:
            result.copy_(grad)
        grad.record_stream(side)

    leaf.register_hook(keep)  # type: ignore[no-untyped-call]
    torch.autograd.backward((leaf * weights).sum())
    side.synchronize()
    return result


@program("backward", late=False)
def what_backward_needs_is_not_overwritten_beside_it(right: bool) -> Tensor:
    leaf, weights, side = _leaf(), send(0), stream(0)
    result = (leaf * weights).sum()
    side.wait_stream(current(0))
    with current(0) if right else side:
        weights.data.copy_(pinned(), non_blocking=True)
    weights.record_stream(side)
    torch.autograd.backward(result)
    return grad_of(leaf)
