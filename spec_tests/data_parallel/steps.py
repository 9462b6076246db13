"""A call that records the arguments of the steps of DataParallel.

The steps are the methods scatter, replicate, parallel_apply and gather.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import DeviceAt, build
from spec_tests.strategies.data_parallel import NewModule
from spec_tests.strategies.tensors import TensorSpec


@dataclass(frozen=True)
class StepsCall:
    """A call of a ``DataParallel`` that returns the arguments of the four steps.

    Args:
        devices: The devices.
        rows: The number of rows of both arguments, one positional and one by keyword.
        dim: The dimension to split.
        grad: Whether grad mode is enabled.
    """

    devices: tuple[DeviceAt, ...]
    rows: int
    dim: int
    grad: bool

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the module, its devices and its arguments."""
        x = TensorSpec((self.rows, 2), requires_grad=True)
        module = NewModule(nn.Bilinear, (2, 2, 1)).build(topology)
        return {
            "module": module.to(topology.device(self.devices[0].slot)),
            "devices": build(list(self.devices), topology),
            "x": x.build(topology),
            "y": x.build(topology),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the name and the arguments of each step, in order."""
        recorded: list[Any] = []
        recording_class = make_recording_class(target.data_parallel.DataParallel, recorded)
        wrapped = recording_class(inputs["module"], inputs["devices"], dim=self.dim)
        with torch.set_grad_enabled(self.grad):
            wrapped(inputs["x"], input2=inputs["y"])
        return recorded

    def __repr__(self) -> str:
        mode = "" if self.grad else "  # without gradients"
        return (
            f"DataParallel(nn.Bilinear(2, 2, 1), {list(self.devices)}, dim={self.dim})"
            f"(x[:{self.rows}], input2=y[:{self.rows}]){mode}"
        )


def make_recording_class(base: type[Any], recorded: list[Any]) -> type[Any]:
    """Return a subclass of ``base`` whose steps append name and arguments to ``recorded``."""

    def make_step(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            recorded.append((name, tuple(map(_without_replicas, args))))
            return getattr(super(recording_class, self), name)(*args)

        return method

    names = ("scatter", "replicate", "parallel_apply", "gather")
    recording_class = type("Recording", (base,), {name: make_step(name) for name in names})
    return recording_class


def _without_replicas(argument: Any) -> Any:
    """Return the copies of the parameters in place of each replica."""
    is_list = isinstance(argument, list) and all(isinstance(each, nn.Module) for each in argument)
    return [dict(each._former_parameters) for each in argument] if is_list else argument


class ParameterFacts(nn.Module):
    """A module that returns whether its weight is a leaf, requires grad and is no nn.Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the three facts as one row of booleans."""
        facts = [self.weight.is_leaf, self.weight.requires_grad, type(self.weight) is Tensor]
        return torch.tensor([facts], device=x.device)
