"""Modules that override methods which replicate calls, and modules with unusual state."""

from functools import partial
from typing import Any, cast

import numpy
import torch
from torch import Tensor, nn

from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.tensors import FLOATS, INTEGERS, patterned


class OverridingLinear(nn.Linear):
    """A linear layer whose ``_replicate_for_data_parallel`` gives each replica a tag."""

    tag = ""

    def _replicate_for_data_parallel(self) -> "OverridingLinear":
        replica: OverridingLinear = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        replica.tag = "made by the override"
        return replica

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Return the layer's output plus the length of the tag. The module's own tag is empty."""
        return super().forward(input) + len(self.tag)


class AssignmentLogger(nn.Module):
    """A module that logs assignments of public attributes. Its replicas use the same log."""

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
        """Return a result that depends on every parameter, buffer and child."""
        result: Tensor = self.child(x * self.weight + self.buffer)
        return result


class SlotsLinear(nn.Linear):
    """A linear layer with one attribute in ``__slots__``."""

    __slots__ = ("slot_attribute",)

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.slot_attribute = 7


class RowEmbedding(nn.Module):
    """An embedding whose gradient may be sparse. The elements of the input are the indices."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 2, sparse=sparse)

    def forward(self, x: Tensor) -> Tensor:
        """Return, for each input element, the sum of the elements of its embedding vector."""
        vectors: Tensor = self.embedding(x.detach().abs().long() % 8)
        return vectors.sum(-1)


class SquaredRows(nn.Module):
    """A bilinear layer that gets each row as both of its inputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Bilinear(width, width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``layer(x, x)``."""
        result: Tensor = self.layer(x, x)
        return result


class BuffersOfAllDtypes(nn.Module):
    """A module with a buffer of every real dtype, of any bits, and with plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        for dtype in (*FLOATS, *INTEGERS, torch.bool):
            self.register_buffer(f"{dtype}".replace(".", "_"), patterned((2, 3), dtype))
        self.settings = {"nested": {"list": [1, 2]}}
        self.names = ["a", "b"]
        self.constant = torch.ones(2)
        self.tensors = [torch.ones(2), nn.Parameter(torch.ones(2))]
        self.unregistered = [nn.Linear(1, 1)]
        self.function = len
        self.partial = partial(torch.add, torch.ones(2))
        self.made_by = BuffersOfAllDtypes
        self.device = torch.device("cpu")
        self.array = numpy.arange(2)
        self.error = ValueError("text")
        self.none = None
        self.numbers = frozenset([1, 2.5, True])
        self.object = object()

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


class LargeParameters(nn.Module):
    """A module with small and large parameters, which need several broadcast buckets."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3,), (600, 500), (2, 2), (600, 600), (800, 800), (5,), (700, 600)]
        filters = torch.rand(60, 60, 10, 10).contiguous(memory_format=torch.channels_last)
        self.weights = nn.ParameterList([*map(torch.rand, shapes), filters])

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus, for each weight, the product of its first and last element."""
        for weight in self.weights:
            x = x + weight.flatten()[-1] * weight.flatten()[0]
        return x


def add_kwargs(
    module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], output: Tensor
) -> Tensor:
    """Return the output times a row of the weight. A forward hook that gets keyword arguments."""
    return output * cast(Tensor, module.weight)[0] + len(kwargs)


def double_input(
    module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Return twice the input. A forward pre-hook that gets keyword arguments."""
    return (args[0] * 2,), kwargs


def triple(module: nn.Module, *gradients: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """Return three times the first gradients. A backward hook, with or without ``pre``."""
    return tuple(None if each is None else each * 3 for each in gradients[0])


def add_bias(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Return the output plus three times the bias of ``module``. A forward hook."""
    return output + 3 * cast(Tensor, module.bias)


def subtract_weight(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the input minus a row of the weight of ``module``. A forward pre-hook."""
    return (args[0] - cast(Tensor, module.weight)[0],)
