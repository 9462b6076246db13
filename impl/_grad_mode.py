"""Whether gradients are needed, and functions that run while grad mode is off."""

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ._settings import call_with_setting

_P = ParamSpec("_P")
_R = TypeVar("_R")


def needs_grad(tensors: Iterable[Tensor]) -> bool:
    """Return whether grad mode is on and one of ``tensors`` requires grad."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def without_grad(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that calls ``function`` while grad mode is off.

    The earlier grad mode is restored, even after an interrupt.
    """

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = torch.is_grad_enabled()
        return call_with_setting(torch.set_grad_enabled, False, before, function, *args, **kwargs)

    return run
