"""Modules, inputs and actions for the tests of calls over processes."""

import torch
from torch import Tensor, nn

WIDTH = 2


def make_linear() -> nn.Linear:
    """Return a linear layer with fixed parameter values."""
    layer = nn.Linear(WIDTH, WIDTH).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 1)
    return layer


class Scale(nn.Module):
    """Module that multiplies by one number, so the input may be split along any dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` times the weight."""
        return x * self.weight


class ScaleByRows(Scale):
    """Module whose output depends on the dimension along which the input is split."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` times the weight and times the number of rows."""
        return x * self.weight * x.size(0)


def make_rank_rows(ranks: int) -> Tensor:
    """Return two rows for each rank, filled with the rank."""
    rows = torch.arange(ranks, dtype=torch.float64).repeat_interleave(2)
    return rows[:, None].expand(-1, WIDTH).contiguous()
