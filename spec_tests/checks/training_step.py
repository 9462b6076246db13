"""One step of training, whose results two wrappers of a module must share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def flatten(nested: Any) -> Tensor:
    """Return the elements of all tensors in ``nested`` as one vector on the CPU."""
    found = [leaf for leaf in tree_leaves(nested) if isinstance(leaf, Tensor)]
    return torch.cat([tensor.detach().cpu().flatten() for tensor in found])


def train_step(module: nn.Module, x: Tensor, forward: Callable[..., Any] | None = None) -> Tensor:
    """Run forward and backward; return the outputs and gradients as one vector.

    Args:
        module: The module whose gradients are computed.
        x: The input.
        forward: The function that computes the output; by default the module.
    """
    module.zero_grad()
    out = (module if forward is None else forward)(x)
    out.square().sum().backward()
    return flatten([out, [parameter.grad for parameter in module.parameters()]])
