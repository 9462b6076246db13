"""Functions that compute and list gradients of models with unused parameters."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


def make_chunkwise(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that applies ``module`` to each half of its input and joins outputs."""
    return lambda x: torch.cat([module(chunk) for chunk in x.chunk(2)])


def list_gradients(module: nn.Module) -> Mapping[str, object]:
    """Return the gradient of each parameter as a list, or None."""
    return {
        name: None if parameter.grad is None else parameter.grad.tolist()
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }


def backward_of_sum(model: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Run backward from the sum of the outputs."""
    torch.autograd.backward(model(x).sum())


def backward_of_penalty(model: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Run backward from a penalty: the sum of squares of the gradient of ``x``."""
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    torch.autograd.backward(gradient.square().sum())
