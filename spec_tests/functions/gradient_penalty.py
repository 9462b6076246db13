"""Gradient penalties: a gradient that is itself differentiated, with and without devices."""

from collections.abc import Callable

import torch
from torch import Tensor

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

Model = Callable[[Tensor, Tensor], Tensor]


def plain(weight: Tensor, rows: Tensor) -> Tensor:
    """Squares of scaled rows."""
    return (rows * weight).square()


def spread(target: Target, topology: Topology) -> Model:
    """`plain` on three devices: rows scattered, weight broadcast, results gathered."""
    devices = topology.take(3)

    def model(weight: Tensor, rows: Tensor) -> Tensor:
        chunks = target.functions.Scatter.apply(devices, None, 0, rows)
        weights = target.functions.Broadcast.apply(devices, weight)
        squares = [plain(*pair) for pair in zip(weights, chunks, strict=True)]
        gathered: Tensor = target.functions.Gather.apply(devices[0], 0, *squares)
        return gathered

    return model


def penalty(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The squared gradients of a loss; the model's output is gone when it returns."""
    loss = model(weight, rows).square().sum()
    slopes = torch.autograd.grad(loss, (weight, rows), create_graph=True)
    return torch.stack([slope.square().sum() for slope in slopes]).sum()


def gradient_of_helper(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The weight's gradient of a penalty that a helper function computed."""
    (found,) = torch.autograd.grad(penalty(model, weight, rows), weight)
    return found


def gradient_in_line(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """The weight's gradient of a penalty computed while the model's output is alive."""
    output = model(weight, rows)
    slopes = torch.autograd.grad(output.square().sum(), (weight, rows), create_graph=True)
    squares = torch.stack([slope.square().sum() for slope in slopes])
    (found,) = torch.autograd.grad(squares.sum() + 0 * output.sum(), weight)
    return found
