"""Functions that describe random CPU tensors: each returns a function that draws one."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = ["Function", "Input", "OperatorCase", "bits", "cplx", "ints", "pos", "real", "unit"]

Input: TypeAlias = Callable[[], Tensor]
Function: TypeAlias = Callable[..., Any]
#: An operator and the inputs that it is called with.
OperatorCase: TypeAlias = tuple[Function, tuple[Input, ...]]


def real(*shape: int) -> Input:
    """Describe normally distributed numbers."""
    return lambda: torch.randn(shape)


def pos(*shape: int) -> Input:
    """Describe numbers from 0.5 to 1.5."""
    return lambda: torch.rand(shape) + 0.5


def unit(*shape: int) -> Input:
    """Describe numbers from 0.1 to 0.9."""
    return lambda: torch.rand(shape) * 0.8 + 0.1


def cplx(*shape: int) -> Input:
    """Describe complex numbers."""
    return lambda: torch.randn(shape, dtype=torch.complex64)


def ints(below: int, *shape: int) -> Input:
    """Describe integers from 0 to ``below - 1``."""
    return lambda: torch.randint(below, shape)


def bits(*shape: int) -> Input:
    """Describe booleans."""
    return lambda: torch.rand(shape) > 0.5
