"""Expected gradients, computed without autograd. A tensor that is passed twice gets a sum."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot


def gradient_snapshot(tensors: Sequence[Tensor]) -> Any:
    """Return a snapshot of gradients for comparison. Strides are left out."""
    return snapshot(list(tensors), {}, strides=False)


def gathered_gradient(gradient: Tensor, chunks: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Return the gradient of each chunk, given the gradient of their concatenation."""
    gradients = torch.split(gradient.cpu(), [chunk.size(dim) for chunk in chunks], dim)
    pairs = list(zip(gradients, chunks, strict=True))
    sums = [
        sum(each.to(chunk.dtype) for each, other in pairs if other is chunk) for chunk in chunks
    ]
    return [
        torch.as_tensor(each).to(chunk.device) for each, chunk in zip(sums, chunks, strict=True)
    ]


def repeated_gradient(leaves: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return the gradients of ``leaves`` if ``count`` copies of each have the same cotangent.

    The cotangents are small whole numbers, so that the products are exact.
    """
    return [
        cotangent(leaf.detach()) * count * sum(leaf is each for each in leaves) for leaf in leaves
    ]
