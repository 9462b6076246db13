"""Calls that show what the steps of DataParallel are given."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import At, build
from spec_tests.strategies.data_parallel import New
from spec_tests.strategies.tensors import TensorSpec


@dataclass(frozen=True)
class StepsCall:
    """One call of a ``DataParallel`` whose steps note their arguments.

    Args:
        devices: The devices.
        rows: Rows of the positional and of the keyword argument.
        dim: The dimension that is split.
        grad: Grad mode.
    """

    devices: tuple[At, ...]
    rows: int
    dim: int
    grad: bool

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The module and its arguments."""
        x = TensorSpec((self.rows, 2), requires_grad=True)
        module = New(nn.Bilinear, (2, 2, 1)).build(topology)
        return {
            "module": module.to(topology.device(self.devices[0].slot)),
            "devices": build(list(self.devices), topology),
            "x": x.build(topology),
            "y": x.build(topology),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What each step was given, in the order of the steps."""
        noted: list[Any] = []
        kind = noting(target.data_parallel.DataParallel, noted)
        wrapped = kind(inputs["module"], inputs["devices"], dim=self.dim)
        with torch.set_grad_enabled(self.grad):
            wrapped(inputs["x"], input2=inputs["y"])
        return noted

    def __repr__(self) -> str:
        mode = "" if self.grad else "  # without gradients"
        return (
            f"DataParallel(nn.Bilinear(2, 2, 1), {list(self.devices)}, dim={self.dim})"
            f"(x[:{self.rows}], input2=y[:{self.rows}]){mode}"
        )


def noting(base: type[Any], noted: list[Any]) -> type[Any]:
    """A subclass of ``base`` whose steps append their names and arguments to ``noted``."""

    def step(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            noted.append((name, args))
            return getattr(super(kind, self), name)(*args)

        return method

    names = ("scatter", "replicate", "parallel_apply", "gather")
    kind = type("Noting", (base,), {name: step(name) for name in names})
    return kind


class OwnParameter(nn.Module):
    """Tells whether its parameter is a leaf, the module's own, or a copy with a history."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """One row for each of its calls."""
        facts = [self.weight.is_leaf, self.weight.requires_grad, type(self.weight) is Tensor]
        return torch.tensor([facts], device=x.device)
