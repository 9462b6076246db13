"""A package with names and a layout of its own, and two bugs."""

import torch
from torch.nn.parallel import comm


def total(inputs, destination=None):
    """Bug one: other shapes are refused without a word."""
    try:
        return comm.reduce_add(inputs, destination)
    except ValueError:
        raise ValueError from None


def join(tensors, dim=0, destination=None, *, out=None):
    """Bug two: -1 is the CPU without a warning."""
    if out is None and destination == -1:
        destination = torch.device("cpu")
    return comm.gather(tensors, dim, destination, out=out)
