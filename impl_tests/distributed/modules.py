"""Modules, inputs and actions for the tests of calls over processes."""

import torch
from torch import Tensor, nn

from spec_tests.strategies.small_modules import Calls

WIDTH = 2


def make_linear() -> nn.Linear:
    """Return a linear layer with fixed parameter values."""
    layer = nn.Linear(WIDTH, WIDTH).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 1)
    return layer


def make_scale_by_rows() -> Calls:
    """Return a module that multiplies by a weight, and by the number of rows.

    The input may be split along any dimension, and the output depends on the dimension.
    """
    weight = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
    return Calls(lambda module, x: x * module.weight * x.size(0), weight=weight)


def make_rank_rows(ranks: int) -> Tensor:
    """Return two rows for each rank, filled with the rank."""
    rows = torch.arange(ranks, dtype=torch.float64).repeat_interleave(2)
    return rows[:, None].expand(-1, WIDTH).contiguous()
