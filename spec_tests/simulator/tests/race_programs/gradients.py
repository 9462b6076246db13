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
