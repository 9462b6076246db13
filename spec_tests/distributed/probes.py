"""Modules that show what a rank is given and what becomes of what it returns."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 2


def linear() -> nn.Linear:
    """A layer with the same parameters every time."""
    layer = nn.Linear(WIDTH, WIDTH).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 1)
    return layer


@dataclass
class Box:
    """An output, and an argument, that is a dataclass."""

    rows: Tensor
    label: str


class Nested(nn.Module):
    """Takes and returns nested values of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, x: Any, state: Tensor, scale: Tensor, *, box: Box, factor: float) -> Any:
        """Rows in several containers, a number of rows, and a text."""
        rows = self.layer(x["rows"]) * scale * factor + state.mean(0) + box.rows
        return {
            "rows": rows,
            "more": (rows.sum(1), [rows.size(0), box.label]),
            "box": Box(rows * 2, "out"),
        }


class Columns(nn.Module):
    """Computes along the last dimension, whatever is split."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        return x * self.weight


class Scalar(nn.Module):
    """Returns one number for its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        total: Tensor = self.layer(x).sum()
        return total


class Choosy(nn.Module):
    """Has a layer that all use, one that positive rows use, one for an output, one for none."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.aside, self.never = (linear() for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What counts, and what no loss looks at."""
        y = self.always(x)
        return (self.sometimes(y) if bool((x > 0).all()) else y), self.aside(x)


class Summing(nn.Module):
    """Adds all numbers that it has seen to its output; a buffer holds their sum."""

    total: Tensor
    same: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("same", self.total)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's rows and the sums under both names."""
        self.total += x.detach().sum()
        rows: Tensor = self.layer(x)
        return rows + self.total + self.same


class Acting(nn.Module):
    """Does something where the first number of its rows is that of a rank.

    Args:
        action: What to do, with the number of the rank.
        whose: These ranks.
        in_backward: Whether it is done then.
    """

    def __init__(
        self, action: Callable[[int], None], whose: tuple[int, ...], in_backward: bool = False
    ) -> None:
        super().__init__()
        self.layer = linear()
        self.action, self.whose, self.in_backward = action, whose, in_backward

    def forward(self, x: Tensor) -> Tensor:
        """The layer's rows."""
        rank = int(x[0, 0])
        y: Tensor = self.layer(x)
        if rank in self.whose and not self.in_backward:
            self.action(rank)
        if rank in self.whose and self.in_backward:
            y.register_hook(lambda grad: self.action(rank))  # type: ignore[no-untyped-call] # torch's
        return y


def numbered(ranks: int) -> Tensor:
    """Two rows for each rank, which hold its number."""
    rows = torch.arange(ranks, dtype=torch.float64).repeat_interleave(2)
    return rows[:, None].expand(-1, WIDTH).contiguous()


def die(rank: int) -> None:
    """End this process at once, as the system does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def raise_key_error(rank: int) -> None:
    """Raise what another process can build from a text."""
    raise KeyError(f"of {rank}")


def raise_local(rank: int) -> None:
    """Raise what cannot be sent: its class can be found nowhere."""

    class LocalError(ValueError):
        pass

    raise LocalError(f"of {rank}")
