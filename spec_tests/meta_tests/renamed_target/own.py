"""A package with names and a layout of its own, and two bugs."""

from typing import Any

import torch
from torch import nn

#: Without types of its own.
comm: Any = nn.parallel.comm


def total(inputs: Any, destination: Any = None) -> Any:
    """Bug one: other shapes are refused without a word."""
    try:
        return comm.reduce_add(inputs, destination)
    except ValueError:
        raise ValueError from None


def join(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Bug two: -1 is the CPU without a warning."""
    if out is None and destination == -1:
        destination = torch.device("cpu")
    return comm.gather(tensors, dim, destination, out=out)
