"""Functions with other names than in torch.nn.parallel, each with a bug; see ``map.toml``."""

from typing import Any

import torch
from torch import nn

comm: Any = nn.parallel.comm  # has no annotations


def total(inputs: Any, destination: Any = None) -> Any:
    """Sum the inputs, but raise a ValueError without a text if shapes differ (the first bug)."""
    try:
        return comm.reduce_add(inputs, destination)
    except ValueError:
        raise ValueError from None


def join(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Gather to the CPU for the destination -1, but do not warn (the second bug)."""
    if out is None and destination == -1:
        destination = torch.device("cpu")
    return comm.gather(tensors, dim, destination, out=out)
