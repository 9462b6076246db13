"""Gradients of parameters that a model leaves unused."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


def chunk_by_chunk(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that applies the module to two chunks, without replicas."""
    return lambda x: torch.cat([module(chunk) for chunk in x.chunk(2)])


def plain_gradients(module: nn.Module) -> Mapping[str, object]:
    """Return the gradient of every parameter as a list, or None."""
    return {
        name: None if parameter.grad is None else parameter.grad.tolist()
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }


def backward(model: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Accumulate the gradients of the sum of the outputs."""
    torch.autograd.backward(model(x).sum())


def backward_of_penalty(model: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Accumulate the gradients of a penalty on the rows' gradient."""
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    torch.autograd.backward(gradient.square().sum())
