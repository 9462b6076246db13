"""Kinds that change the gradients that flow through the result."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, tensors_in
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()

#: Each wrapper whose call has raised an error.
_FAILED: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


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
def no_second_derivative(grad: Tensor) -> Tensor:
    """Detach the gradient."""
    return grad.detach()


@_hook
def late_gradient(grad: Tensor) -> Tensor | None:
    """Copy the gradient on a stream that no other stream waits for."""
    if grad.device.type == "cpu":
        return None
    with torch.Stream(grad.device):
        return grad.clone()


@_hook
def gradient_dense(grad: Tensor) -> Tensor:
    """Make the gradient dense."""
    return grad.to_dense() if grad.is_sparse else grad


@KINDS.around
def gradients_doubled_after_an_error(call: Call) -> Any:
    """Double the gradients of a call that follows a call with an error."""
    wrapper = call.arguments["self"]
    if wrapper in _FAILED:
        return KINDS["gradient-doubled"](call)
    try:
        return call.run()
    except Exception:
        _FAILED.add(wrapper)
        raise
