"""Modules and containers in which a trigger may raise an exception."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .trigger import REPLICATE_PLACES, Containers, Trigger

__all__ = ["FaultyModule", "InAutocast", "leaves_of", "make_faulty", "pass_through"]


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
    if not x.requires_grad:
        return x
    y: Tensor = _ReachInBackward.apply(x, trigger)  # type: ignore[no-untyped-call] # in torch
    if y.requires_grad and trigger.place == "hook of a gradient":

        def reach(grad: Tensor) -> None:
            trigger.reach("hook of a gradient", grad.device)

        y.register_hook(reach)  # type: ignore[no-untyped-call] # in torch
    return y


def leaves_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dictionaries.

    Call no method of a container that may raise an injected exception.
    """
    if isinstance(value, Tensor):
        yield value
    for _, member in _members(value):
        yield from leaves_of(member)


def _members(value: Any) -> list[tuple[Any, Any]]:
    # `__iter__` of a subclass may raise an injected exception.
    if isinstance(value, dict):
        return list(dict.items(value))
    if isinstance(value, list):
        return list(enumerate(list.__iter__(value)))
    return list(enumerate(tuple.__iter__(value))) if isinstance(value, tuple) else []


def make_faulty(
    value: Any,
    containers: Containers | None,
    change: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Any:
    """Return ``value`` with lists and dictionaries that may raise, and with changed tensors.

    Only the classes list, dict and tuple are rebuilt. Without ``containers``, no list raises.
    """
    if isinstance(value, Tensor):
        return change(value)
    if type(value) not in (list, tuple, dict):
        return value
    items = {key: make_faulty(member, containers, change) for key, member in _members(value)}
    if type(value) is tuple:
        return tuple(items.values())
    if type(value) is list:
        return containers.listed(items.values()) if containers else [*items.values()]
    return containers.table(items) if containers else items


class FaultyModule(nn.Module):
    """A module that calls another module. The trigger may raise before, after, and in backward.

    Args:
        inner: The other module.
        trigger: The trigger of the fault.
        containers: Creates the lists and dictionaries of the output; None for plain ones.
        site: The module with the hooks: ``inner`` or a module in it.
    """

    def __init__(
        self, inner: nn.Module, trigger: Trigger, containers: Containers | None, site: nn.Module
    ) -> None:
        super().__init__()
        self.inner, self.trigger, self.containers = inner, trigger, containers
        _add_hooks(site, trigger)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the inner module; a list of it if there are ``containers``."""
        self.trigger.reach("forward", _device_of((args, kwargs)))
        output = self.inner(*args, **kwargs)
        return make_faulty([output] if self.containers else output, self.containers)

    @staticmethod
    def around(
        inner: nn.Module, trigger: Trigger, containers: Containers | None, site: nn.Module
    ) -> "FaultyModule":
        """Return a module around ``inner``, with the methods that the place of the fault needs."""
        module_class = _CustomModule if trigger.place in REPLICATE_PLACES else FaultyModule
        return module_class(inner, trigger, containers, site).train(inner.training)


class _CustomModule(FaultyModule):
    """A module that overrides ``_replicate_for_data_parallel`` and ``__setattr__``."""

    def _replicate_for_data_parallel(self) -> Any:
        self.trigger.reach("_replicate_for_data_parallel")
        return super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call] # in torch

    def __setattr__(self, name: str, value: Any) -> None:
        if "trigger" in self.__dict__:
            self.trigger.reach("__setattr__")
        super().__setattr__(name, value)


class InAutocast(nn.Module):
    """A module that runs in the caller's autocast, which the oracle's threads do not have."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.is_enabled = inner, torch.is_autocast_enabled("sim")
        self.dtype = torch.get_autocast_dtype("sim")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the inner module."""
        with torch.autocast("sim", self.dtype, self.is_enabled):
            return self.inner(*args, **kwargs)


def _add_hooks(module: nn.Module, trigger: Trigger) -> None:
    # The hooks are closures: a bound method as a hook would refer back to its module.
    def before(_: nn.Module, args: Any) -> None:
        trigger.reach("forward pre-hook", _device_of(args))

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        trigger.reach("forward hook", _device_of(output))
        return make_faulty(output, None, lambda tensor: pass_through(tensor, trigger))

    def in_backward(_: nn.Module, grad_input: Any, grad_output: Any) -> None:
        trigger.reach("backward hook", _device_of(grad_output))

    if trigger.place == "forward pre-hook":
        module.register_forward_pre_hook(before)
    if trigger.place in ("forward hook", "backward", "hook of a gradient"):
        module.register_forward_hook(after)
    if trigger.place == "backward hook":
        module.register_full_backward_hook(in_backward)


def _device_of(value: Any) -> torch.device | None:
    return next((tensor.device for tensor in leaves_of(value)), None)
