"""Functions that run while grad mode is off."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_grad(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``function`` to run while grad mode is off.

    An interrupt at any instant restores grad mode. ``torch.no_grad`` would not: an interrupt at
    the start of its ``__exit__`` ends it.
    """

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(False)
            return function(*args, **kwargs)
        finally:
            try:
                torch.set_grad_enabled(before)
            except KeyboardInterrupt:  # The interrupt may precede the effect of the call.
                torch.set_grad_enabled(before)
                raise

    return run
