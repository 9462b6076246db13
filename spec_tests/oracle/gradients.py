"""Gradients computed without autograd."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot


def gradient_snapshot(tensors: Sequence[Tensor]) -> Any:
    """Return the properties by which gradients are compared: values, dtype, shape, device."""
    return snapshot(list(tensors), {}, strides=False)


def gathered_gradient(gradient: Tensor, chunks: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Split the gradient of joined ``chunks`` into their gradients."""
    parts = torch.split(gradient.cpu(), [chunk.size(dim) for chunk in chunks], dim)
    return [
        part.to(chunk.dtype).to(chunk.device) for part, chunk in zip(parts, chunks, strict=True)
    ]


def repeated_gradient(leaves: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return the cotangents of ``leaves`` times ``count``: small whole numbers, exact."""
    return [cotangent(leaf.detach()) * count for leaf in leaves]
