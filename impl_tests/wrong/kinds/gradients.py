"""Kinds that change the gradients that flow through the result."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, tensors_in
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _hook(change: Callable[[Tensor], Tensor | None]) -> Callable[[Tensor], Tensor | None]:
    def run(call: Call) -> Any:
        result = call.run()
        for tensor in _differentiable(result):
            if tensor.requires_grad:
                tensor.register_hook(change)  # type: ignore[no-untyped-call] # in torch
        return result

    KINDS[change.__name__.replace("_", "-")] = run
    return change


def _differentiable(result: Any) -> list[Tensor]:
    found = tensors_in(result)
    for module in result if isinstance(result, (list, tuple)) else ():
        if isinstance(module, torch.nn.Module):
            found += [*module.parameters()]
            found += [
                value
                for member in module.modules()
                for value in vars(member).values()
                if isinstance(value, Tensor)
            ]
            found += [
                value
                for member in module.modules()
                for value in getattr(member, "_former_parameters", {}).values()
            ]
    return found


@_hook
def gradient_doubled(grad: Tensor) -> Tensor:
    """Double the gradient."""
    return grad * 2


@_hook
def gradient_zero(grad: Tensor) -> Tensor:
    """Set the gradient to zero."""
    return grad * 0


@_hook
def gradient_reversed(grad: Tensor) -> Tensor:
    """Reverse the gradient."""
    return grad.flip(0) if grad.dim() else grad


@_hook
def no_second_derivative(grad: Tensor) -> Tensor:
    """Detach the gradient."""
    return grad.detach()


@_hook
def second_derivative_doubled(grad: Tensor) -> Tensor:
    """Double the second derivative."""
    return grad * 2 - grad.detach()


@_hook
def gradient_with_other_strides(grad: Tensor) -> Tensor:
    """Return the gradient with other strides."""
    order = list(range(grad.dim()))[::-1]
    return grad.permute(order).contiguous().permute(order)


@_hook
def gradient_raises(grad: Tensor) -> Tensor:
    """Raise an error in backward."""
    raise RuntimeError("perturbed")


@_hook
def late_gradient(grad: Tensor) -> Tensor | None:
    """Copy the gradient on a stream that no other stream waits for."""
    if grad.device.type == "cpu":
        return None
    with torch.Stream(grad.device):
        return grad.clone()


@_hook
def synchronizing_backward(grad: Tensor) -> None:
    """Wait for the device in backward."""
    if grad.device.type != "cpu":
        torch.accelerator.synchronize(grad.device)


@_hook
def device_changed_in_backward(grad: Tensor) -> None:
    """Change the current device in backward."""
    if grad.device.type != "cpu":
        torch.accelerator.set_device_index((grad.device.index or 0) ^ 1)


_KEPT: list[Tensor] = []


@_hook
def gradient_kept(grad: Tensor) -> None:
    """Keep a reference to the gradient."""
    _KEPT.append(grad)
