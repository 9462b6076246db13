"""Modules that override what replication relies on, or keep state where it does not look."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.tensors import FLOATS, INTEGERS


class OverridingLinear(nn.Linear):
    """Its replicas are made by an override and carry a tag."""

    tag = ""

    def _replicate_for_data_parallel(self) -> "OverridingLinear":
        replica: OverridingLinear = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        replica.tag = "made by the override"
        return replica

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Another result for a replica than for the module."""
        return super().forward(input) + len(self.tag)


class AssignmentLogger(nn.Module):
    """It notes every assignment of a public attribute in a list that its replicas share."""

    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str]] = []
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self.register_buffer("buffer", torch.rand(WIDTH))
        self.child = nn.Linear(WIDTH, WIDTH)
        self.register_parameter("no_parameter", None)
        self.register_buffer("no_buffer", None)
        self.register_module("no_child", None)
        self.log.clear()

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and "log" in vars(self):
            self.log.append((name, type(value).__name__))
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Something of every member."""
        result: Tensor = self.child(x * self.weight + self.buffer)
        return result


class UnhashableLinear(nn.Linear):
    """It can be compared and not hashed."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]  # that is its point


class RequiresArguments(nn.Linear):
    """It cannot be made without arguments, not even empty."""

    def __new__(cls, width: int) -> "RequiresArguments":
        """An empty one."""
        return super().__new__(cls)

    def __init__(self, width: int) -> None:
        super().__init__(width, width)


class LabelDeleted(nn.Linear):
    """It is given an attribute while it is still empty, and gives it up."""

    def __new__(cls) -> "LabelDeleted":
        """An empty one with a label."""
        made = super().__new__(cls)
        made.__dict__["label"] = "new"
        return made

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        del self.label


class SlotsLinear(nn.Linear):
    """It keeps one attribute outside its dictionary."""

    __slots__ = ("kept_apart",)

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.kept_apart = 7


class RowEmbedding(nn.Module):
    """An embedding whose gradient may be sparse; the row's numbers are its indices."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 2, sparse=sparse)

    def forward(self, x: Tensor) -> Tensor:
        """One entry a number."""
        found: Tensor = self.embedding(x.detach().abs().long() % 8)
        return found.sum(-1)


class BuffersOfAllDtypes(nn.Module):
    """A buffer of every dtype that is not complex, and ordinary attributes of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        for dtype in (*FLOATS, *INTEGERS, torch.bool):
            self.register_buffer(f"{dtype}".replace(".", "_"), torch.ones(2, 3).to(dtype))
        self.settings = {"nested": {"list": [1, 2]}}
        self.names = ["a", "b"]
        self.constant = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        """The row itself."""
        return x


class LargeParameters(nn.Module):
    """Parameters of more bytes than travel together, small ones between large ones."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3,), (600, 500), (2, 2), (600, 600), (800, 800), (5,), (700, 600)]
        filters = torch.rand(60, 60, 10, 10).contiguous(memory_format=torch.channels_last)
        self.weights = nn.ParameterList([*map(torch.rand, shapes), filters])

    def forward(self, x: Tensor) -> Tensor:
        """The row moved by something of every weight."""
        for weight in self.weights:
            x = x + weight.flatten()[-1] * weight.flatten()[0]
        return x


def add_bias(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """A forward hook that uses the module that it is given."""
    return output + 3 * cast(Tensor, module.bias)


def subtract_weight(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A forward pre-hook that uses the module that it is given."""
    return (args[0] - cast(Tensor, module.weight)[0],)
