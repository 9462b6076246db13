"""Kinds of modules, also those for which some implementations of replicate have failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations, prune

from spec_tests.machine.devices import Topology
from spec_tests.strategies.layers import (
    LAYER_KINDS,
    WIDTH,
    Convolution,
    NoneEntries,
    Recurrent,
    Scaled,
    seeded,
    square_layer,
)
from spec_tests.strategies.tensors import FLOATS, INTEGERS, TensorSpec, patterned


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


class AssignmentLogger(NoneEntries):
    """A module that logs assignments of public attributes. Its replicas use the same log."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and "log" in vars(self):
            self.log.append((name, type(value).__name__))
        super().__setattr__(name, value)


class RowEmbedding(nn.Module):
    """An embedding whose gradient may be sparse. The elements of the input are the indices."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 2, sparse=sparse)

    def forward(self, x: Tensor) -> Tensor:
        """Return, for each input element, the sum of the elements of its embedding vector."""
        vectors: Tensor = self.embedding(x.detach().abs().long() % 8)
        return vectors.sum(-1)


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


class Attention(nn.Module):
    """A module that applies an attention layer. Each input row is a sequence of length 1."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer. Each row is a sequence of length 1."""
        result: Tensor = self.layer(x[:, None, :])[:, 0]
        return result


def _triple(module: nn.Module, *gradients: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """Return three times the first gradients. A backward hook, with or without ``pre``."""
    return tuple(None if each is None else each * 3 for each in gradients[0])


def _linear_with_hooks() -> nn.Module:
    layer = square_layer()
    layer.register_forward_hook(lambda module, args, output: output + 3 * module.bias)
    layer.register_forward_hook(
        lambda module, args, kwargs, output: output * module.weight[0] + len(kwargs),
        prepend=True,
        with_kwargs=True,
        always_call=True,
    )
    layer.register_forward_pre_hook(lambda module, args: args[0] - module.weight[0])
    layer.register_forward_pre_hook(
        lambda module, args, kwargs: ((args[0] * 2,), kwargs), prepend=True, with_kwargs=True
    )
    layer.register_full_backward_hook(_triple)
    layer.register_full_backward_pre_hook(_triple, prepend=True)
    return layer


def _pruned_linear() -> nn.Module:
    layer: nn.Module = prune.l1_unstructured(square_layer(), "weight", amount=3)  # type: ignore[no-untyped-call]
    return layer


def _lazy_linear() -> nn.Module:
    layer = nn.LazyLinear(WIDTH)
    layer(torch.zeros(1, WIDTH))
    return layer


def _fake_quantized_linear() -> nn.Module:
    quantization = torch.ao.quantization
    observer = quantization.MovingAverageMinMaxObserver()
    return nn.Sequential(square_layer(), observer, quantization.FakeQuantize())  # type: ignore[no-untyped-call]


def _transformer_layer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
    return Attention(layer)


def _graph_module() -> nn.Module:
    return fx.symbolic_trace(nn.Sequential(square_layer(), nn.Tanh(), square_layer()))


def _weight_norm_linear() -> nn.Module:
    layer: nn.Module = nn.utils.weight_norm(square_layer())
    return layer


#: For each kind of module: its constructor. `LAYER_KINDS` has most of them; only `ModuleOfKind`
#: builds the others.
MODULE_KINDS: Mapping[str, Callable[[], nn.Module]] = {
    **LAYER_KINDS,
    "convolution": lambda: Convolution(torch.contiguous_format),
    "weight_norm_hook": _weight_norm_linear,
    "spectral_norm_hook": lambda: nn.utils.spectral_norm(square_layer()),
    "spectral_norm": lambda: parametrizations.spectral_norm(square_layer()),
    "rnn": lambda: Recurrent(nn.RNN(WIDTH, WIDTH, num_layers=2, batch_first=True)),
    "projected_lstm": lambda: Recurrent(nn.LSTM(WIDTH, 6, proj_size=WIDTH, batch_first=True)),
    "transformer": _transformer_layer,
    "graph": _graph_module,
    "observers": _fake_quantized_linear,
    "hooks": _linear_with_hooks,
    "pruned": _pruned_linear,
    "materialised": _lazy_linear,
    "embedding": lambda: RowEmbedding(sparse=False),
    "sparse_embedding": lambda: RowEmbedding(sparse=True),
    "assorted": BuffersOfAllDtypes,
    "large": LargeParameters,
    "tagged": lambda: OverridingLinear(WIDTH, WIDTH),
    "logged": AssignmentLogger,
    "complex": lambda: Scaled(torch.rand(WIDTH, dtype=torch.complex64)),
    "empty": nn.Identity,
}


def build_module(kind: str) -> nn.Module:
    """Return a new module of a kind of `MODULE_KINDS` on the CPU, always with the same values."""
    return seeded(MODULE_KINDS[kind])


@dataclass(frozen=True)
class ModuleOfKind:
    """A description of a module: ``kind`` is a key of `MODULE_KINDS`."""

    kind: str

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""
        return build_module(self.kind).to(topology.device(slot))

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""
        return TensorSpec((count, WIDTH), requires_grad=requires_grad, slot=slot)

    def __repr__(self) -> str:
        return self.kind
