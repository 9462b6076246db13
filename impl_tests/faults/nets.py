"""Modules in which a trigger may raise an exception: in methods, in hooks and in backward.

All parameters and inputs are floats with small integer values, so sums are exact in any order.
"""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.stress.sharing import create_tensor

from .trigger import REPLICATE_PLACES, Containers, Trigger

__all__ = ["FaultyNet", "build_net", "pass_through"]


class _ReachInBackward(torch.autograd.Function):
    """The identity function. Its ``backward`` is the place "backward" of the trigger."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, trigger: Trigger) -> Tensor:
        """Return a view of ``x``."""
        ctx.trigger = trigger
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return ``grad``, unless the trigger raises its exception."""
        ctx.trigger.reach("backward", grad.device)
        return grad, None


def pass_through(x: Tensor, trigger: Trigger) -> Tensor:
    """Return a tensor equal to ``x``. The trigger may raise in its backward or gradient hook."""
    y: Tensor = _ReachInBackward.apply(x, trigger)  # type: ignore[no-untyped-call] # in torch
    if y.requires_grad and trigger.place == "hook of a gradient":

        def reach(grad: Tensor) -> None:
            trigger.reach("hook of a gradient", grad.device)

        y.register_hook(reach)  # type: ignore[no-untyped-call] # in torch
    return y


class FaultyNet(nn.Module):
    """Two linear layers and a buffer.

    Args:
        trigger: The trigger of the fault.
        containers: Creates the list and the dictionary around the output; None for a plain tensor.
    """

    shift: Tensor

    def __init__(self, trigger: Trigger, containers: Containers | None) -> None:
        super().__init__()
        self.trigger, self.containers = trigger, containers
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any, scale: Tensor | None = None) -> Any:
        """Return the output of the layers. ``x`` is a tensor, or a list that contains one."""
        if not isinstance(x, Tensor):
            x = x[0]
        self.trigger.reach("forward", x.device)
        hidden = pass_through(self.first(x), self.trigger) + self.shift
        y = self.second(hidden.relu())
        y = y if scale is None else y * scale
        if self.containers is None:
            return y
        return self.containers.listed([y, self.containers.table(other=y + 1)])


class _CustomNet(FaultyNet):
    """A net that overrides ``_replicate_for_data_parallel`` and ``__setattr__``."""

    def _replicate_for_data_parallel(self) -> Any:
        self.trigger.reach("_replicate_for_data_parallel")
        return super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call] # in torch

    def __setattr__(self, name: str, value: Any) -> None:
        if "trigger" in self.__dict__:
            self.trigger.reach("__setattr__")
        super().__setattr__(name, value)


def build_net(
    trigger: Trigger, containers: Containers | None, device: torch.device | str
) -> FaultyNet:
    """Return a net on ``device``. If the place of ``trigger`` is a hook, the net has this hook."""
    is_custom = trigger.place in REPLICATE_PLACES
    net = (_CustomNet if is_custom else FaultyNet)(trigger, containers).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(create_tensor(*parameter.shape) % 5 - 2)
    _add_hooks(net.first, trigger)
    return net.to(device)


def _add_hooks(module: nn.Module, trigger: Trigger) -> None:
    # The hooks are closures: a bound method as a hook would refer back to its module.
    def before(_: nn.Module, args: Any) -> None:
        trigger.reach("forward pre-hook", args[0].device)

    def after(_: nn.Module, args: Any, output: Any) -> None:
        trigger.reach("forward hook", output.device)

    def in_backward(_: nn.Module, grad_input: Any, grad_output: Any) -> None:
        trigger.reach("backward hook", grad_output[0].device)

    if trigger.place == "forward pre-hook":
        module.register_forward_pre_hook(before)
    if trigger.place == "forward hook":
        module.register_forward_hook(after)
    if trigger.place == "backward hook":
        module.register_full_backward_hook(in_backward)
