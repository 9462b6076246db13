"""Gradient penalties: a gradient that is itself differentiated, with and without devices."""

from collections.abc import Callable

import torch
from torch import Tensor

from spec_tests.target import Target
from spec_tests.topology import Topology

Model = Callable[[Tensor, Tensor], Tensor]


def plain(weight: Tensor, rows: Tensor) -> Tensor:
    """Cubes of scaled rows: curved enough that a second derivative shows."""
    return (rows * weight) ** 3


def spread(target: Target, topology: Topology) -> Model:
    """`plain` on three devices: rows scattered, weight broadcast, results gathered."""
    devices = topology.take(3)

    def model(weight: Tensor, rows: Tensor) -> Tensor:
        chunks = target.functions.Scatter.apply(devices, None, 0, rows)
        weights = target.functions.Broadcast.apply(devices, weight)
        cubes = [plain(*pair) for pair in zip(weights, chunks, strict=True)]
        gathered: Tensor = target.functions.Gather.apply(devices[0], 0, *cubes)
        return gathered

    return model


def penalty(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The squared gradient of the rows; the model's output is gone when it returns."""
    (slope,) = torch.autograd.grad(model(weight, rows).sum(), rows, create_graph=True)
    return slope.square().sum()


def gradient_of_helper(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The weight's gradient of a penalty that a helper function computed."""
    (found,) = torch.autograd.grad(penalty(model, weight, rows), weight)
    return found


def gradient_in_line(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The weight's gradient of a penalty computed while the model's output is alive."""
    output = model(weight, rows)
    (slope,) = torch.autograd.grad(output.sum(), rows, create_graph=True)
    (found,) = torch.autograd.grad(slope.square().sum() + 0 * output.sum(), weight)
    return found
