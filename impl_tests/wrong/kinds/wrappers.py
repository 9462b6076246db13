"""Kinds that change the ``DataParallel`` that a constructor has made."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _change(change: Callable[[nn.Module], object]) -> Callable[[nn.Module], object]:
    def run(call: Call) -> Any:
        result = call.run()
        wrapper = call.arguments.get("self")
        if wrapper is not None:
            change(wrapper)
        return result

    KINDS[f"wrappers-{change.__name__.replace('_', '-')}"] = run
    return change


@_change
def with_a_buffer(wrapper: nn.Module) -> None:
    """Add a buffer to the wrapper."""
    wrapper.register_buffer("perturbed", torch.zeros(()))


@_change
def with_a_child(wrapper: nn.Module) -> None:
    """Add a child to the wrapper."""
    wrapper.add_module("perturbed", nn.Identity())
