"""Modules that torch.compile compiles, entirely or partly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.layers import seeded
from spec_tests.strategies.modules import ModuleSpec
from spec_tests.strategies.tensors import TensorSpec

#: A backend of torch.compile: its name, or a function that compiles a captured graph.
Backend = str | Callable[..., Any]


def _compile(network: nn.Module, backend: Backend) -> nn.Module:
    compiled: nn.Module = torch.compile(network, backend=backend)  # type: ignore[assignment]
    return compiled


def _compile_in_place(network: nn.Module, backend: Backend) -> nn.Module:
    network.compile(backend=backend)
    return network


def _compile_child(network: nn.Module, backend: Backend) -> nn.Module:
    linear = nn.Linear(4, 4).to(next(network.parameters()))
    return nn.Sequential(_compile(network, backend), nn.Tanh(), linear)


#: For each way to compile a module m: a function that compiles a module with a backend.
COMPILATIONS: Mapping[str, Callable[[nn.Module, Backend], nn.Module]] = {
    "torch.compile(m)": _compile,
    "m.compile()": _compile_in_place,
    "a compiled child": _compile_child,
}


@dataclass(frozen=True)
class CompiledNetwork:
    """A description of a compiled network.

    Args:
        network: A description of the network.
        compilation: How the network is compiled: a key of `COMPILATIONS`.
        backend: The name of the backend of torch.compile.
    """

    network: ModuleSpec
    compilation: str
    backend: str

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return the compiled network on device number ``slot``, or on the CPU if it is None."""
        torch.compiler.reset()
        compile_network = COMPILATIONS[self.compilation]
        return seeded(compile_network, self.network.build(topology, slot), self.backend)

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""
        return self.network.rows(count, requires_grad=requires_grad, slot=slot)

    def __repr__(self) -> str:
        return f"{self.compilation}, m = {self.network!r}, backend={self.backend!r}"
