"""Kinds that change the ``DataParallel`` that a constructor has made."""

import threading
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


@_change
def with_attributes_of_the_module(wrapper: nn.Module) -> None:
    """Set the parameters of the module as attributes of the wrapper, too."""
    vars(wrapper).update(vars(wrapper)["_modules"]["module"].named_parameters(recurse=False))


@_change
def excluded_from_compilation(wrapper: nn.Module) -> None:
    """Exclude the forward from compilation without a reason."""
    vars(wrapper)["forward"] = torch.compiler.disable(wrapper.forward)  # type: ignore[no-untyped-call] # in torch


@_change
def on_other_devices(wrapper: nn.Module) -> None:
    """Move a module on the CPU to the accelerator, and one on the accelerator to the CPU."""
    tensor = next(wrapper.parameters())
    wrapper.to("sim:0" if tensor.device.type == "cpu" else "cpu")


@_change
def with_a_lock(wrapper: nn.Module) -> None:
    """Add an attribute that cannot be copied or pickled."""
    vars(wrapper)["perturbed"] = threading.Lock()
