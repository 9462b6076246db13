"""Inputs of the operators: each function here returns a function that draws a CPU tensor."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = [
    "Function",
    "Input",
    "OperatorCase",
    "booleans",
    "complex_normal",
    "integers",
    "normal",
    "positive",
    "probabilities",
]

Input: TypeAlias = Callable[[], Tensor]
Function: TypeAlias = Callable[..., Any]
#: An operator, and the functions that draw its arguments.
OperatorCase: TypeAlias = tuple[Function, tuple[Input, ...]]


def normal(*shape: int) -> Input:
    """Return a function that draws normally distributed numbers."""
    return lambda: torch.randn(shape)


def positive(*shape: int) -> Input:
    """Return a function that draws numbers from 0.5 to 1.5."""
    return lambda: torch.rand(shape) + 0.5


def probabilities(*shape: int) -> Input:
    """Return a function that draws numbers from 0.1 to 0.9."""
    return lambda: torch.rand(shape) * 0.8 + 0.1


def complex_normal(*shape: int) -> Input:
    """Return a function that draws normally distributed complex numbers."""
    return lambda: torch.randn(shape, dtype=torch.complex64)


def integers(high: int, *shape: int) -> Input:
    """Return a function that draws integers from 0 to ``high - 1``."""
    return lambda: torch.randint(high, shape)


def booleans(*shape: int) -> Input:
    """Return a function that draws booleans."""
    return lambda: torch.rand(shape) > 0.5
