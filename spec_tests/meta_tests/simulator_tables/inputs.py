"""Functions that create random CPU tensors for the tables."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = ["Function", "Input", "OperatorCase", "bits", "cplx", "ints", "pos", "real", "unit"]

Input: TypeAlias = Callable[[], Tensor]
Function: TypeAlias = Callable[..., Any]
#: A function, and the functions that create its arguments.
OperatorCase: TypeAlias = tuple[Function, tuple[Input, ...]]


def real(*shape: int) -> Input:
    """Draw normally distributed numbers."""
    return lambda: torch.randn(shape)


def pos(*shape: int) -> Input:
    """Draw numbers from 0.5 to 1.5."""
    return lambda: torch.rand(shape) + 0.5


def unit(*shape: int) -> Input:
    """Draw numbers strictly between 0 and 1."""
    return lambda: torch.rand(shape) * 0.8 + 0.1


def cplx(*shape: int) -> Input:
    """Draw complex numbers."""
    return lambda: torch.randn(shape, dtype=torch.complex64)


def ints(below: int, *shape: int) -> Input:
    """Draw integers from 0 to ``below - 1``."""
    return lambda: torch.randint(below, shape)


def bits(*shape: int) -> Input:
    """Draw booleans."""
    return lambda: torch.rand(shape) > 0.5
