"""The law of references: a module computes the same as its variant without references."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot


def results(
    module: nn.Module,
    wrap: Callable[[nn.Module], Callable[[Tensor], Tensor]],
    xs: Sequence[Tensor],
) -> Any:
    """Return the outputs of the wrapped module, the gradients of its parameters, and its buffers.

    ``xs`` are the inputs of the calls, one after the other.
    """
    parallel = wrap(module)
    outputs = [parallel(x) for x in xs]
    leaves = [leaf for leaf in (*module.parameters(), *module.buffers()) if leaf.requires_grad]
    gradients: Sequence[Tensor | None] = ()
    if leaves and outputs[-1].requires_grad:
        gradients = torch.autograd.grad(
            outputs, leaves, [*map(cotangent, outputs)], allow_unused=True
        )
    return snapshot([outputs, gradients, dict(module.named_buffers())], {}, strides=False)
