"""Networks of layers, with tied weights and shared layers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import nn

from spec_tests.machine.capabilities import offered
from spec_tests.machine.devices import Topology
from spec_tests.strategies.layers import LAYER_KINDS, ROW_WISE, WIDTH, Residual, seeded
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensors import TensorSpec

#: Kinds of layers with a ``weight`` that another linear layer can share.
_TIEABLE = ("linear", "linear_without_bias")


@dataclass(frozen=True)
class Layer:
    """A description of one layer. The parameters of a frozen layer require no gradient."""

    kind: str
    frozen: bool = False

    def __repr__(self) -> str:
        return f"{self.kind}{'.frozen' if self.frozen else ''}"


@dataclass(frozen=True)
class SharedLayer:
    """A description of a second use of layer number ``index``: the same object again."""

    index: int

    def __repr__(self) -> str:
        return f"same_as({self.index})"


@dataclass(frozen=True)
class TiedLinear:
    """A description of a linear layer that shares the weight of layer number ``index``."""

    index: int

    def __repr__(self) -> str:
        return f"tied_to({self.index})"


@dataclass(frozen=True)
class ResidualSpec:
    """A description of a residual block: an inner network, plus its input."""

    inner: tuple["Part", ...]

    def __repr__(self) -> str:
        return f"skip({', '.join(map(repr, self.inner))})"


Part = Layer | SharedLayer | TiedLinear | ResidualSpec


@dataclass(frozen=True)
class ModuleSpec:
    """A description of a network that maps rows of `WIDTH` numbers to rows of `WIDTH` numbers.

    Args:
        parts: The layers in order. Layers are numbered from 0 in this order. The number of a
            residual block follows the numbers of its inner layers.
        dtype: The dtype of the input, and of all parameters without a fixed dtype.
        training: Whether the network is in training mode.
    """

    parts: tuple[Part, ...]
    dtype: torch.dtype = torch.float32
    training: bool = True

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new network on device number ``slot``, or on the CPU if ``slot`` is None."""
        with _default_dtype(self.dtype):
            net = seeded(_build_sequence, self.parts, [])
        return move(net, topology.device(slot)).train(self.training)

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""
        return TensorSpec((count, WIDTH), self.dtype, requires_grad=requires_grad, slot=slot)

    @property
    def layer_count(self) -> int:
        """The number of layers. A layer that is appended next has this number."""
        return sum(1 for _ in flatten(self.parts))

    def append(self, *parts: "Part") -> "ModuleSpec":
        """Return a description of the network with ``parts`` appended."""
        return replace(self, parts=(*self.parts, *parts))

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self.parts))
        dtype = "" if self.dtype == torch.float32 else f".to({self.dtype})"
        return f"net({parts}){dtype}{'' if self.training else '.eval()'}"


@dataclass(frozen=True)
class Placed:
    """A description of a network on device number ``slot``, or on the CPU if ``slot`` is None."""

    network: ModuleSpec
    slot: int | None = None

    def build(self, topology: Topology) -> nn.Module:
        """Return a new network on the device."""
        return self.network.build(topology, self.slot)

    def __repr__(self) -> str:
        return f"{self.network!r}.{'cpu()' if self.slot is None else f'to(devices[{self.slot}])'}"


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def move(net: nn.Module, device: torch.device) -> nn.Module:
    """Move ``net`` to ``device`` and return it. Tied parameters stay tied.

    ``Module.to`` unties them on devices on which it creates new parameters.
    """
    places = [
        (module, name, parameter)
        for module in net.modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    ]
    net.to(device)
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for module, name, parameter in places:
        setattr(module, name, moved.setdefault(parameter, getattr(module, name)))
    return net


def flatten(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield all parts, residual blocks before their inner parts."""
    for part in parts:
        yield part
        if isinstance(part, ResidualSpec):
            yield from flatten(part.inner)


def _build_sequence(parts: Sequence[Part], built: list[nn.Module]) -> nn.Module:
    return nn.Sequential(*(_build_part(part, built) for part in parts))


def _build_part(part: Part, built: list[nn.Module]) -> nn.Module:
    module = _new_module(part, built)
    built.append(module)
    return module


def _new_module(part: Part, built: list[nn.Module]) -> nn.Module:
    match part:
        case Layer(kind, frozen):
            return LAYER_KINDS[kind]().requires_grad_(not frozen)
        case SharedLayer(index):
            return built[index]
        case TiedLinear(index):
            tied = nn.Linear(WIDTH, WIDTH)
            tied.weight = built[index].weight  # type: ignore[assignment]
            return tied
        case ResidualSpec(inner):
            return Residual(_build_sequence(inner, built))


_NOT_SEPARATE = ("sparse_buffer", "parameter_as_buffer", "one_address")
#: The kinds of layers whose parameters and buffers are dense, and share no memory.
SEPARATE = tuple(kind for kind in LAYER_KINDS if kind not in _NOT_SEPARATE)
#: Kinds of layers without parametrizations. A parametrized layer gets a class of its own, which
#: cannot be pickled and is part of a reference cycle.
PICKLABLE = tuple(kind for kind in LAYER_KINDS if kind not in ("weight_norm", "orthogonal"))


@st.composite
def module_specs(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = tuple(LAYER_KINDS),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
    max_layers_per_level: int = 4,
) -> ModuleSpec:
    """Draw descriptions of networks, possibly with residual blocks. Shrinks to one linear layer.

    Args:
        draw: The draw function of Hypothesis.
        kinds: The kinds of layers. A kind that the devices compute wrong is not drawn.
        dtypes: The dtypes of the input and of most parameters.
        max_layers_per_level: The largest number of layers in the network and in each
            residual block.
    """
    parts = draw(_parts(computed(kinds), [], max_layers_per_level, max_depth=1))
    training = draw(st.sampled_from([True, False]))
    return ModuleSpec(parts, draw(st.sampled_from(offered(dtypes))), training)


def row_wise_specs(*, max_layers_per_level: int = 4) -> st.SearchStrategy[ModuleSpec]:
    """Draw descriptions of networks of `ROW_WISE` layers. Shrinks to one linear layer."""
    return module_specs(kinds=tuple(ROW_WISE), max_layers_per_level=max_layers_per_level)


@st.composite
def _parts(
    draw: st.DrawFn,
    kinds: Sequence[str],
    parts_so_far: list[Part],
    max_layers: int,
    max_depth: int,
) -> tuple[Part, ...]:
    """Draw parts, and append them to ``parts_so_far``. Shrinks to one layer of the first kind."""
    parts: list[Part] = []
    for _ in range(draw(st.integers(1, max_layers))):
        # New layers come first, so that failures shrink to them.
        layers = st.builds(Layer, st.sampled_from(kinds), st.sampled_from([False, True]))
        options: dict[str, st.SearchStrategy[Part]] = {"layer": layers}
        if parts_so_far:
            options["same"] = st.builds(SharedLayer, st.integers(0, len(parts_so_far) - 1))
        tieable = [index for index, part in enumerate(parts_so_far) if _is_tieable(part)]
        if tieable:
            options["tied"] = st.builds(TiedLinear, st.sampled_from(tieable))
        if max_depth:
            inner = _parts(kinds, parts_so_far, max_layers, max_depth - 1)
            options["skip"] = st.builds(ResidualSpec, inner)
        parts.append(draw(options[draw(st.sampled_from([*options]))]))
        parts_so_far.append(parts[-1])
    return tuple(parts)


def _is_tieable(part: Part) -> bool:
    return isinstance(part, TiedLinear) or (isinstance(part, Layer) and part.kind in _TIEABLE)
