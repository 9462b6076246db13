"""Gradient penalties: a module's gradient with respect to its input, differentiated again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.checks.snapshot import snapshot
from spec_tests.machine import capabilities
from spec_tests.strategies.layers import seeded

#: A module, or a function that calls it on several devices.
Model = Callable[[Tensor], Tensor]


def network() -> nn.Sequential:
    """Return a small float64 network whose second derivatives are not zero.

    The test is not-run if the devices do not compute in float64.
    """
    capabilities.require("float64")
    return seeded(lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double())


def inline_penalty(model: Model, x: Tensor) -> Tensor:
    """Return the sum of the squared gradients of the output with respect to ``x``.

    The result also contains the output times 0, so that the graph of the output stays alive.
    """
    output = model(x)
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return gradient.square().sum() + 0 * output.sum()


def helper_penalty(model: Model, x: Tensor) -> Tensor:
    """Like `inline_penalty`, but without the output, which is freed before the next backward."""
    return _input_gradient(model, x).square().sum()


def _input_gradient(model: Model, x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return gradient


def penalty_and_loss(model: Model, x: Tensor) -> Tensor:
    """Return a loss plus a penalty from another call, as in adversarial training."""
    return model(x).sum() + helper_penalty(model, x)


PENALTIES = (inline_penalty, helper_penalty, penalty_and_loss)


def gradients(
    penalty: Callable[[Model, Tensor], Tensor], wrapped: Model, module: nn.Module, x: Tensor
) -> Any:
    """Return a snapshot of the penalty and of its gradients for ``x`` and the parameters.

    If the penalty does not depend on a parameter, the gradient is zero here, not None. Divergence
    FN-1 tests the difference between zero and None.

    Args:
        penalty: One of `PENALTIES`.
        wrapped: The model to call: ``module`` itself, or the result of the fixture ``wrap``.
        module: The module with the parameters.
        x: The input.
    """
    loss = penalty(wrapped, x)
    leaves = (x, *module.parameters())
    found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return snapshot([loss, *found], {}, strides=False)
