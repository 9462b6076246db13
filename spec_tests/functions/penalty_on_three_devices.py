"""Gradient penalties on one and on several devices. A penalty depends on a gradient."""

from collections.abc import Callable

import torch
from torch import Tensor

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

Model = Callable[[Tensor, Tensor], Tensor]


def scaled_square(weight: Tensor, rows: Tensor) -> Tensor:
    """Return the square of each element of ``rows * weight``."""
    return (rows * weight).square()


def build_three_device_model(target: Target, topology: Topology) -> Model:
    """Return a function that computes `scaled_square` with ``target`` on three devices."""
    devices = topology.take(3)

    def model(weight: Tensor, rows: Tensor) -> Tensor:
        chunks = target.functions.Scatter.apply(devices, None, 0, rows)
        weights = target.functions.Broadcast.apply(devices, weight)
        squares = [scaled_square(*pair) for pair in zip(weights, chunks, strict=True)]
        gathered: Tensor = target.functions.Gather.apply(devices[0], 0, *squares)
        return gathered

    return model


def penalty(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """Return the sum of the squared gradients of a loss.

    The output of ``model`` is freed when this function returns.
    """
    loss = model(weight, rows).square().sum()
    gradients = torch.autograd.grad(loss, (weight, rows), create_graph=True)
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum()


def gradient_of_returned_penalty(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """Return the gradient of `penalty` with respect to the weight."""
    (found,) = torch.autograd.grad(penalty(model, weight, rows), weight)
    return found


def gradient_with_live_output(model: Model, weight: Tensor, rows: Tensor) -> Tensor:
    """Return the gradient of a gradient penalty with respect to the weight.

    Unlike in `penalty`, the output of ``model`` is alive during the second backward.
    """
    output = model(weight, rows)
    gradients = torch.autograd.grad(output.square().sum(), (weight, rows), create_graph=True)
    squares = torch.stack([gradient.square().sum() for gradient in gradients])
    (found,) = torch.autograd.grad(squares.sum() + 0 * output.sum(), weight)
    return found
