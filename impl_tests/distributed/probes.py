"""Modules, inputs and actions for the tests of calls over processes."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


@dataclass
class Box:
    """A dataclass with a tensor and a text, used as input and as output."""

    rows: Tensor
    label: str


class ModuleWithNestedArguments(nn.Module):
    """Module with nested inputs and outputs of many types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = make_linear()

    def forward(self, x: Any, state: Tensor, scale: Tensor, *, box: Box, factor: float) -> Any:
        """Return rows in several containers, the number of rows, and a text."""
        rows = self.layer(x["rows"]) * scale * factor + state.mean(0) + box.rows
        return {
            "rows": rows,
            "more": (rows.sum(1), [rows.size(0), box.label]),
            "box": Box(rows * 2, "out"),
        }


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


class LinearSum(nn.Module):
    """Linear layer whose output is summed to a 0-dim tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = make_linear()

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        total: Tensor = self.layer(x).sum()
        return total


class ConditionalLayers(nn.Module):
    """Four layers: used always, only for positive rows, only for a second output, and never."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.if_positive, self.extra, self.never = (make_linear() for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output for the loss, and a second output that no loss uses."""
        y = self.always(x)
        return (self.if_positive(y) if bool((x > 0).all()) else y), self.extra(x)


class ActOnRanks(nn.Module):
    """Linear layer that performs an action on some ranks.

    Args:
        action: A function of the rank, called in forward or in backward.
        ranks: The ranks that call ``action``. The first number in a rank's input is the rank.
        in_backward: Whether ``action`` is called in backward instead of in forward.
    """

    def __init__(
        self, action: Callable[[int], None], ranks: tuple[int, ...], in_backward: bool = False
    ) -> None:
        super().__init__()
        self.layer = make_linear()
        self.action, self.ranks, self.in_backward = action, ranks, in_backward

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        rank = int(x[0, 0])
        y: Tensor = self.layer(x)
        if rank in self.ranks and not self.in_backward:
            self.action(rank)
        if rank in self.ranks and self.in_backward:
            y.register_hook(lambda grad: self.action(rank))  # type: ignore[no-untyped-call] # torch's
        return y


def make_rank_rows(ranks: int) -> Tensor:
    """Return two rows for each rank, filled with the rank."""
    rows = torch.arange(ranks, dtype=torch.float64).repeat_interleave(2)
    return rows[:, None].expand(-1, WIDTH).contiguous()


def kill_process(rank: int) -> None:
    """Kill this process, as the system does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def raise_key_error(rank: int) -> None:
    """Raise an error whose class another process can rebuild from a text."""
    raise KeyError(f"of {rank}")


def raise_local_error(rank: int) -> None:
    """Raise an error that cannot be pickled, because its class is local."""

    class LocalError(ValueError):
        pass

    raise LocalError(f"of {rank}")
