"""Modules that are compiled, as a whole or in part, by backends that need no compiler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.modules import ModuleSpec
from spec_tests.strategies.tensors import TensorSpec

#: A name, or what makes something callable of a captured graph.
Backend = str | Callable[..., Any]


def _wrapped(network: nn.Module, backend: Backend) -> nn.Module:
    compiled: nn.Module = torch.compile(network, backend=backend)  # type: ignore[assignment]
    return compiled


def _in_place(network: nn.Module, backend: Backend) -> nn.Module:
    network.compile(backend=backend)
    return network


def _child(network: nn.Module, backend: Backend) -> nn.Module:
    return nn.Sequential(_wrapped(network, backend), nn.Tanh(), nn.Linear(4, 4).to(_like(network)))


def _like(network: nn.Module) -> torch.Tensor:
    return next(network.parameters())


#: What is compiled.
HOW: Mapping[str, Callable[[nn.Module, Backend], nn.Module]] = {
    "torch.compile(m)": _wrapped,
    "m.compile()": _in_place,
    "a compiled child": _child,
}


@dataclass(frozen=True)
class Compiled:
    """A network compiled in some way."""

    network: ModuleSpec
    how: str
    backend: str

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """The compiled network, on the device of ``slot``; None is the CPU."""
        torch.compiler.reset()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return HOW[self.how](self.network.build(topology, slot), self.backend)

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """An input of ``count`` rows."""
        return self.network.rows(count, requires_grad=requires_grad, slot=slot)

    def __repr__(self) -> str:
        return f"{self.how}, m = {self.network!r}, backend={self.backend!r}"
