"""Modules that the benchmarks replicate and run."""

import torch
from torch import Tensor, nn

WIDTH = 16


def build_blocks(count: int, width: int = WIDTH) -> nn.Module:
    """Return ``count`` blocks of Linear, BatchNorm and ReLU, each of 4 modules and 7 tensors."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
            for _ in range(count)
        )
    )


class Recurrent(nn.Module):
    """A GRU cell in a loop: many small operators, each of which needs the previous result."""

    def __init__(self, width: int = 32, steps: int = 60) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.steps = nn.GRUCell(width, width), steps

    def forward(self, x: Tensor) -> Tensor:
        """Return the state after all steps, of the shape of ``x``."""
        state = torch.zeros_like(x)
        for _ in range(self.steps):
            state = self.cell(x, state)
        return state


class Filter(nn.Module):
    """A Kalman filter: products of small matrices, and a linear system for each row."""

    def __init__(self, state: int = 4, seen: int = 2, steps: int = 30) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.move = nn.Parameter(torch.eye(state) + 0.1 * torch.randn(state, state))
        self.see = nn.Parameter(torch.randn(seen, state))
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        """Return the state of each row after all steps; every step observes the same ``x``."""
        noise = 0.1 * torch.eye(len(self.move)), 0.1 * torch.eye(len(self.see))
        state = x.new_zeros(len(x), len(self.move), 1)
        spread = noise[0].expand(len(x), -1, -1)
        for _ in range(self.steps):
            state = self.move @ state
            spread = self.move @ spread @ self.move.mT + noise[0]
            seen = self.see @ spread
            gain = torch.linalg.solve(seen @ self.see.mT + noise[1], seen).mT
            state = state + gain @ (x[:, :, None] - self.see @ state)
            spread = spread - gain @ seen
        return state[:, :, 0]


class Identity(nn.Module):
    """A module that returns its input, to measure the overhead of running replicas."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x


def build_nested(rows: int, device: torch.device) -> list[dict[str, Tensor]]:
    """Return four dicts of four tensors of ``rows`` rows each."""
    return [
        {name: torch.ones(rows, 4, device=device) for name in ("a", "b", "c", "d")}
        for _ in range(4)
    ]
