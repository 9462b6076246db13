"""Modules that keep references to their submodules, and hooks that are their methods.

Each module has a plain variant, which calls the same submodules directly and has no hooks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any
from weakref import WeakMethod, ref

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.machine.devices import Topology
from spec_tests.strategies.layers import LAYER_KINDS
from spec_tests.strategies.modules import ModuleSpec, module_specs, move


def _call(x: Tensor, module: nn.Module) -> Tensor:
    result: Tensor = module(x)
    return result


def _call_first(module: nn.Module, x: Tensor) -> Tensor:
    return _call(x, module)


#: For each form of a reference: the function that makes it, given a module.
FORMS: Mapping[str, Callable[[nn.Module], Any]] = {
    "module": lambda module: module,
    "method": lambda module: module.forward,
    "partial": partial,
    "partial_of_method": lambda module: partial(module.forward),
    "partial_argument": lambda module: partial(_call_first, module),
    "partial_keyword": lambda module: partial(_call, module=module),
    "partial_in_partial": lambda module: partial(partial(_call_first, module)),
    "weak": ref,
    "weak_method": lambda module: WeakMethod(module.__call__),
}


def _cycle(value: Any) -> list[Any]:
    result = [value]
    result.append(result)
    return result


#: For each container: the function that makes it. Its first member or value is the argument.
CONTAINERS: Mapping[str, Callable[[Any], Any]] = {
    "list": lambda value: [value, 1],
    "tuple": lambda value: (value, "text"),
    "dict": lambda value: {"key": value, "other": 2},
    "set": lambda value: {value},
    "key": lambda value: {value: 1},
    "cycle": _cycle,
}


@dataclass(frozen=True)
class ReferenceSpec:
    """A description of a reference to layer ``index``: its form, and the containers around it."""

    index: int
    form: str
    containers: tuple[str, ...]

    def make(self, layer: nn.Module) -> Any:
        """Return a new reference to ``layer``."""
        held = FORMS[self.form](layer)
        for name in self.containers:
            held = CONTAINERS[name](held)
        return held

    def find(self, held: Any) -> Callable[[Tensor], Tensor]:
        """Return a callable that calls the layer to which ``held`` refers."""
        for name in reversed(self.containers):
            held = next(iter(held.values() if name == "dict" else held))
        called: Any = held() if isinstance(held, ref) else held
        found: Callable[[Tensor], Tensor] = called
        return found


class Refers(nn.Module):
    """A module that calls its layers, and then some of them again through references."""

    def __init__(self, layers: nn.ModuleList, specs: Sequence[ReferenceSpec], plain: bool) -> None:
        super().__init__()
        self.layers, self.specs, self.plain = layers, specs, plain
        if not plain:
            for number, spec in enumerate(specs):
                # `setattr` would register a module as a child.
                vars(self)[f"held_{number}"] = spec.make(self._layer(spec))
            self.both = [vars(self)["held_0"]], [vars(self)["held_0"]]

    def _layer(self, spec: ReferenceSpec) -> nn.Module:
        return self.layers[spec.index % len(self.layers)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last call."""
        for layer in self.layers:
            x = layer(x)
        for number, spec in enumerate(self.specs):
            x = (self._layer(spec) if self.plain else self._find(spec, number))(x)
        return x

    def _find(self, spec: ReferenceSpec, number: int) -> Callable[[Tensor], Tensor]:
        (first,), (second,) = self.both
        assert first is second is self.held_0  # shared objects stay shared
        return spec.find(getattr(self, f"held_{number}"))


class Hooked(nn.Module):
    """A module that keeps an input and an output of layers on itself, and adds them to its output.

    Unless it is plain, its methods keep them, which are hooks of the layers.
    """

    def __init__(self, layers: nn.ModuleList, index: int, form: str, plain: bool) -> None:
        super().__init__()
        self.layers, self.plain, self.index = layers, plain, index % len(layers)
        if not plain:
            layer = layers[self.index]
            keep = partial(self.keep, "kept") if form == "partial" else self.keep_output
            layer.register_forward_hook(keep)
            layer.register_forward_pre_hook(self.keep_input)

    def keep(self, name: str, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        """Keep ``output`` under ``name``: a hook."""
        setattr(self, name, output)

    def keep_output(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        """Keep ``output``: a hook."""
        self.kept = output

    def keep_input(self, layer: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Keep the input and double it: a hook."""
        (self.first,) = inputs
        return (2 * self.first,)

    def forward(self, x: Tensor) -> Tensor:
        """Return what was kept."""
        for index, layer in enumerate(self.layers):
            if self.plain and index == self.index:
                self.first = x
                x = self.kept = layer(2 * x)
            else:
                x = layer(x)
        return self.kept + self.first


def wrap_forward(layer: Any) -> None:
    """Replace ``forward`` as the package accelerate does."""
    old = layer.forward

    def new_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        return module._old_forward(*args, **kwargs)

    layer._old_forward = old
    layer.forward = update_wrapper(partial(new_forward, layer), old)


@dataclass(frozen=True)
class ReferringSpec:
    """A description of a :class:`Refers` or, with a form of hooks, a :class:`Hooked`."""

    network: ModuleSpec
    references: tuple[ReferenceSpec, ...]
    hooks: str = ""
    wrapped: bool = False

    def build(self, topology: Topology, slot: int | None = 0, *, plain: bool = False) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""
        # Each layer is in a module of its own, because layers may be shared.
        network: Any = self.network.build(topology, None)
        layers = nn.ModuleList(nn.Sequential(layer) for layer in network)
        move(layers, topology.device(slot))
        if self.wrapped and not plain:
            for layer in layers:
                wrap_forward(layer)
        if self.hooks:
            index = self.references[0].index
            return Hooked(layers, index, self.hooks, plain).train(self.network.training)
        return Refers(layers, self.references, plain).train(self.network.training)


def _containers(draw: st.DrawFn) -> tuple[str, ...]:
    outer = st.lists(st.sampled_from(["list", "tuple", "dict", "cycle"]), max_size=2)
    inner = draw(st.sampled_from(["", "set", "key"]))
    return (*filter(None, [inner]), *draw(outer))


@st.composite
def referring_specs(draw: st.DrawFn, *, hooks: bool) -> ReferringSpec:
    """Draw descriptions of modules with references, or with hooks. Shrinks to one linear layer.

    A shared or residual layer may occur, and layers that change buffers.
    """
    references = [
        ReferenceSpec(draw(st.integers(0, 3)), draw(st.sampled_from([*FORMS])), _containers(draw))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return ReferringSpec(
        draw(
            module_specs(kinds=tuple(LAYER_KINDS), dtypes=(torch.float32,), max_layers_per_level=3)
        ),
        tuple(references),
        draw(st.sampled_from(["method", "partial"])) if hooks else "",
        draw(st.booleans()),
    )
