"""The setting of a trial's call, such as its target and devices, and the call itself."""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from impl_tests.stress.sharing import create_tensor

from .nets import FaultyNet, build_net
from .target import Target
from .trigger import Containers, Trigger

__all__ = ["Call", "Setting", "compute_with_grads", "leaves_of"]


@dataclass(frozen=True)
class Setting:
    """The target, the devices and the fault of a call.

    Args:
        target: The implementation under test.
        ordinals: The ordinals of the devices; an ordinal may occur more than once.
        trigger: The trigger of the fault.
        containers: Whether inputs and outputs contain lists and dictionaries in which the trigger
            may raise its exception.
        rng: Draws shapes and options.
    """

    target: Target
    ordinals: tuple[int, ...]
    trigger: Trigger
    containers: bool
    rng: random.Random

    @property
    def devices(self) -> list[torch.device]:
        """The devices; a device may occur more than once."""
        return [torch.device("sim", ordinal) for ordinal in self.ordinals]

    def build_net(self, ordinal: int) -> FaultyNet:
        """Return a net on a device."""
        containers = Containers(self.trigger) if self.containers else None
        return build_net(self.trigger, containers, torch.device("sim", ordinal))

    def listed(self, items: Iterable[Any]) -> list[Any]:
        """Return a list of ``items``. The trigger may raise in it if ``containers`` is True."""
        return Containers(self.trigger).listed(items) if self.containers else list(items)

    def boxed(self, x: Tensor) -> Any:
        """Return ``x`` or, if ``containers`` is True, a list that contains ``x``."""
        return self.listed([x]) if self.containers else x

    def tensor(self, *shape: int, ordinal: int | None = None, grad: bool = False) -> Tensor:
        """Return a tensor of floats with integer values; on the CPU if ``ordinal`` is None."""
        device = "cpu" if ordinal is None else torch.device("sim", ordinal)
        return create_tensor(*shape, device=device).requires_grad_(grad)

    def options(self, function: Callable[..., Any], **draws: Callable[[], Any]) -> dict[str, Any]:
        """Draw all values. Return those whose names are parameters of ``function``."""
        known = inspect.signature(function).parameters
        drawn = {name: draw() for name, draw in draws.items()}
        return {name: value for name, value in drawn.items() if name in known}


@dataclass(frozen=True)
class Call:
    """A call of a public function that can be repeated.

    Args:
        compute: A function that calls the public function. It returns the results and the
            gradients of ``leaves`` as tensors on the CPU.
        expected: A function that returns the right values of these tensors, computed without the
            target.
        leaves: The tensors whose gradients are computed.
        net: The module that runs in the call; None if no module runs.
        replicas: Whether parallel_apply runs the modules, so that errors name the replica.
    """

    compute: Callable[[], list[Tensor]]
    expected: Callable[[], list[Tensor]]
    leaves: tuple[Tensor, ...] = ()
    net: nn.Module | None = None
    replicas: bool = False

    def drop_grads(self) -> None:
        """Free the gradients of ``leaves``."""
        for leaf in self.leaves:
            leaf.grad = None


def leaves_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dictionaries.

    Call no method of a container that may raise an injected exception.
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in dict.values(value):
            yield from leaves_of(item)
    elif isinstance(value, (list, tuple)):
        # `__iter__` of a subclass may raise an injected exception.
        items = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        for item in items:
            yield from leaves_of(item)


def compute_with_grads(function: Callable[[], Any], leaves: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors of ``function()`` and, in grad mode, the gradients of ``leaves``."""
    for leaf in leaves:
        leaf.grad = None
    outputs = list(leaves_of(function()))
    with_grad = [output for output in outputs if output.requires_grad]
    if with_grad and torch.is_grad_enabled():
        _run_backward([output.sum() for output in with_grad])
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return [tensor.detach().cpu() for tensor in [*outputs, *grads]]


def _run_backward(losses: list[Tensor]) -> None:
    # `torch.autograd.backward` removes the default device for a moment. After an interrupt in
    # this moment the default device would be lost. `_engine_run_backward` does not remove it.
    ones = (*map(torch.ones_like, losses),)
    options = {"allow_unreachable": True, "accumulate_grad": True}
    _engine_run_backward(tuple(losses), ones, False, False, (), **options)
