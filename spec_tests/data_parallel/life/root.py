"""The module of a wrapper whose life is tested."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from spec_tests.data_parallel.life import log


class Pair(NamedTuple):
    """A container of outputs."""

    first: Any
    second: Any


#: For each container: a function that returns the outputs, for a tensor and a mode.
STRUCTURES: dict[str, Callable[[Tensor, bool], Any]] = {
    "tensor": lambda y, _: y,
    "list": lambda y, _: [y, (y, y * 2)],
    "named tuple": lambda y, _: Pair(y.detach(), {"y": y}),
    "dict": lambda y, training: {"y": y, "z": -y} if training else {"z": y, "p": (y.tanh(),)},
}
#: The modules on which `Root.forward` was called since the last `take_called`, and its tensors.
_called: list[weakref.ref[Any]] = []


class Root(nn.Module):
    """A network that rules of a life can change. It maps rows to rows.

    Args:
        net: The network.
        dim: The dimension of the rows in inputs and outputs.
        structure: The container of the outputs, one of `STRUCTURES`.
    """

    net: nn.Module
    again: nn.Module | None
    alias: nn.Parameter | None
    added: Tensor | None

    def __init__(self, net: nn.Module, dim: int, structure: str) -> None:
        super().__init__()
        self.net = net
        self.dim, self.structure = dim, structure
        self.dropout = nn.Dropout(0.0)
        self.register_module("again", None)
        self.register_parameter("alias", None)
        self.register_buffer("added", None)
        self.factor = 1.0
        self.refused: float | None = None
        self.error: type[Exception] = ValueError
        self.calls = 0
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs. The log has the calls of the hooks of each call in one group."""
        with log.group():
            return super().__call__(*args, **kwargs)

    def forward(self, x: Tensor, *, weight: Tensor | None = None, offset: float = 0.0) -> Any:
        """Return the rows in the container. Raise `error` if a row begins with `refused`."""
        _called.append(weakref.ref(self))
        self.calls += 1
        x = x.movedim(self.dim, 0)
        self.seen.append((len(x), x.requires_grad, torch.is_grad_enabled(), self.names()))
        y = self.net(x)
        if self.refused is not None and (x.detach()[:, 0] == self.refused).any():
            raise self.error(f"a row begins with {self.refused}")
        y = self.dropout(y) * self.factor + offset
        y = y if self.again is None else y + self.again(x)
        for extra in (self.alias, self.added):
            y = y if extra is None else y + extra.sum()
        y = y if weight is None else y * weight.movedim(self.dim, 0)
        y = y.movedim(0, self.dim)
        outputs = STRUCTURES[self.structure](y, self.training)
        _called.extend(weakref.ref(each) for each in pytree.tree_leaves((x, outputs)))
        return outputs

    def names(self) -> tuple[Any, ...]:
        """Return the names and modes of the modules, and the names of the buffers."""
        modes = tuple((name, each.training) for name, each in self.named_modules())
        return modes, tuple(name for name, _ in self.named_buffers())


def take_called() -> list[weakref.ref[Any]]:
    """Return the modules that were called since the last call of this function, and tensors."""
    found = list(_called)
    _called.clear()
    return found
