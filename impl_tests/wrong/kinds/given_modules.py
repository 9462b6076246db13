"""Kinds that change the modules that a call is given."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _after(change: Callable[[nn.Module], object]) -> Callable[[nn.Module], object]:
    """Register a change of the given modules after the call."""

    def run(call: Call) -> Any:
        modules = call.modules()
        try:
            return call.run()
        finally:
            for module in modules:
                change(module)

    KINDS[f"given-modules-{change.__name__.replace('_', '-')}"] = run
    return change


@_after
def switched(module: nn.Module) -> None:
    """Switch between train and eval."""
    module.training = not module.training


@_after
def with_other_dictionaries(module: nn.Module) -> None:
    """Replace the dictionaries of submodules, parameters and buffers by equal ones."""
    for name in ("_modules", "_parameters", "_buffers"):
        vars(module)[name] = vars(module)[name].copy()


@_after
def with_new_parameters(module: nn.Module) -> None:
    """Replace the parameters."""
    for member in module.modules():
        for name, parameter in list(member._parameters.items()):
            if parameter is not None:
                member._parameters[name] = nn.Parameter(parameter.detach().clone())


@_after
def with_gradients(module: nn.Module) -> None:
    """Set the gradients of parameters to zero."""
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)


@_after
def without_gradients(module: nn.Module) -> None:
    """Delete the gradients of parameters."""
    for parameter in module.parameters():
        parameter.grad = None
