"""Modules that callers may wrap: networks of layers, with tied weights and shared layers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.layers import KINDS, ROW_WISE, WIDTH, Residual
from spec_tests.strategies.tensors import TensorSpec

#: Kinds that have a ``weight`` of their own which another linear layer can use.
_TIEABLE = ("linear", "linear_without_bias")


@dataclass(frozen=True)
class Layer:
    """One layer; ``frozen``: its parameters require no gradient."""

    kind: str
    frozen: bool = False

    def __repr__(self) -> str:
        return f"{self.kind}{'.frozen' if self.frozen else ''}"


@dataclass(frozen=True)
class SharedLayer:
    """The layer finished as number ``index``, the same object once more."""

    index: int

    def __repr__(self) -> str:
        return f"same_as({self.index})"


@dataclass(frozen=True)
class TiedLinear:
    """A linear layer whose weight is that of the layer finished as number ``index``."""

    index: int

    def __repr__(self) -> str:
        return f"tied_to({self.index})"


@dataclass(frozen=True)
class ResidualBlock:
    """A network inside the network, with a connection around it."""

    inner: tuple["Part", ...]

    def __repr__(self) -> str:
        return f"skip({', '.join(map(repr, self.inner))})"


Part = Layer | SharedLayer | TiedLinear | ResidualBlock


@dataclass(frozen=True)
class ModuleSpec:
    """How to make one network from rows of `WIDTH` to rows of `WIDTH`; equal specs, equal nets.

    Args:
        parts: Its layers in order. They count as finished in the order in which they are written,
            a skip after its inside.
        dtype: The dtype of its input, and of all parameters whose kind says no other.
        training: Whether it is in training mode.
    """

    parts: tuple[Part, ...]
    dtype: torch.dtype = torch.float32
    training: bool = True

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """The network on the device of ``slot``; None is the CPU."""
        # Forking the generator keeps the caller's random numbers; no device's is used.
        with torch.random.fork_rng(devices=[]), _default_dtype(self.dtype):
            torch.default_generator.manual_seed(0)
            net = _sequence(self.parts, [])
        return net.to(topology.device(slot)).train(self.training)

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """An input of ``count`` rows."""
        return TensorSpec((count, WIDTH), self.dtype, requires_grad=requires_grad, slot=slot)

    @property
    def finished(self) -> int:
        """How many layers it has; the next one to be added gets this number."""
        return sum(1 for _ in _flat(self.parts))

    def then(self, *parts: "Part") -> "ModuleSpec":
        """The network with more layers at its end."""
        return replace(self, parts=(*self.parts, *parts))

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self.parts))
        dtype = "" if self.dtype == torch.float32 else f".to({self.dtype})"
        return f"net({parts}){dtype}{'' if self.training else '.eval()'}"


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _flat(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, ResidualBlock):
            yield from _flat(part.inner)


def _sequence(parts: Sequence[Part], finished: list[nn.Module]) -> nn.Module:
    return nn.Sequential(*(_finish(part, finished) for part in parts))


def _finish(part: Part, finished: list[nn.Module]) -> nn.Module:
    module = _make(part, finished)
    finished.append(module)
    return module


def _make(part: Part, finished: list[nn.Module]) -> nn.Module:
    match part:
        case Layer(kind, frozen):
            return KINDS[kind]().requires_grad_(not frozen)
        case SharedLayer(index):
            return finished[index]
        case TiedLinear(index):
            tied = nn.Linear(WIDTH, WIDTH)
            tied.weight = finished[index].weight  # type: ignore[assignment]
            return tied
        case ResidualBlock(inner):
            return Residual(_sequence(inner, finished))


@st.composite
def module_specs(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
    max_parts: int = 4,
) -> ModuleSpec:
    """Networks of up to ``max_parts`` layers a level. Shrinks to one linear layer.

    Args:
        draw: Hypothesis's.
        kinds: The kinds of layers; `row_wise_specs` leaves out those that look at the batch.
        dtypes: Of the input and of most parameters.
        max_parts: Most layers a level.
    """
    parts = _parts(draw, kinds, [], max_parts, depth=1)
    training = draw(st.sampled_from([True, False]))
    return ModuleSpec(parts, draw(st.sampled_from(dtypes)), training)


def row_wise_specs(
    *, dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64), max_parts: int = 4
) -> st.SearchStrategy[ModuleSpec]:
    """Networks whose result for a row depends on that row alone. Shrinks to one linear layer."""
    return module_specs(kinds=tuple(ROW_WISE), dtypes=dtypes, max_parts=max_parts)


def _parts(
    draw: st.DrawFn, kinds: Sequence[str], finished: list[Part], most: int, depth: int
) -> tuple[Part, ...]:
    return tuple(
        _part(draw, kinds, finished, most, depth) for _ in range(draw(st.integers(1, most)))
    )


def _part(
    draw: st.DrawFn, kinds: Sequence[str], finished: list[Part], most: int, depth: int
) -> Part:
    part = draw(_choices(draw, kinds, finished, most, depth))
    finished.append(part)
    return part


def _choices(
    draw: st.DrawFn, kinds: Sequence[str], finished: list[Part], most: int, depth: int
) -> st.SearchStrategy[Part]:
    # Plain layers come first: what a failure shrinks to.
    layers = st.builds(Layer, st.sampled_from(kinds), st.sampled_from([False, True]))
    options: dict[str, st.SearchStrategy[Part]] = {"layer": layers}
    if finished:
        options["same"] = st.builds(SharedLayer, st.integers(0, len(finished) - 1))
    tieable = [index for index, part in enumerate(finished) if _is_tieable(part)]
    if tieable:
        options["tied"] = st.builds(TiedLinear, st.sampled_from(tieable))
    name = draw(st.sampled_from([*options, "skip"] if depth else list(options)))
    if name == "skip":
        return st.just(ResidualBlock(_parts(draw, kinds, finished, most, depth - 1)))
    return options[name]


def _is_tieable(part: Part) -> bool:
    return isinstance(part, TiedLinear) or (isinstance(part, Layer) and part.kind in _TIEABLE)
