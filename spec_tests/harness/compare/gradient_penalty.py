"""Gradient penalties: a module's gradient with respect to its input, differentiated again."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target

Model = Callable[[Tensor], Tensor]


def network(dtype: torch.dtype) -> nn.Sequential:
    """Return a small network whose second derivatives are not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(dtype)


def wrap(target: Target, module: nn.Module, devices: Sequence[torch.device], api: str) -> Model:
    """Return ``module`` on several devices: DataParallel for "class", else data_parallel."""
    if api == "class":
        wrapped: Model = target.data_parallel.DataParallel(module, devices)
        return wrapped
    return lambda x: target.data_parallel.data_parallel(module, x, devices)


def inline_penalty(model: Model, x: Tensor) -> Tensor:
    """Return the penalty. The output of the model is alive during the second differentiation."""
    output = model(x)
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return gradient.square().sum() + 0 * output.sum()


def helper_penalty(model: Model, x: Tensor) -> Tensor:
    """Return the penalty. The output of the model is freed before the second differentiation."""
    return _input_gradient(model, x).square().sum()


def _input_gradient(model: Model, x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return gradient


def penalty_and_loss(model: Model, x: Tensor) -> Tensor:
    """Return the penalty plus the loss of another call, as in adversarial training."""
    return model(x).sum() + helper_penalty(model, x)


PENALTIES = (inline_penalty, helper_penalty, penalty_and_loss)


def gradients(
    penalty: Callable[[Model, Tensor], Tensor], model: Model, module: nn.Module, x: Tensor
) -> Any:
    """Return the penalty and its gradients for the input and the parameters of the module.

    A parameter that the penalty does not depend on has a zero gradient here, because zero and no
    gradient are the subject of divergence FN-1.
    """
    loss = penalty(model, x)
    leaves = (x, *module.parameters())
    found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return snapshot([loss, *found], {}, strides=False)
