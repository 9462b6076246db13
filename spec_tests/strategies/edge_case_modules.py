"""Modules for which some implementations of replicate have failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations, prune

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.custom_modules import (
    AssignmentLogger,
    BuffersOfAllDtypes,
    LargeParameters,
    OverridingLinear,
    RowEmbedding,
    SlotsLinear,
    SquaredRows,
    add_bias,
    add_kwargs,
    double_input,
    subtract_weight,
    triple,
)
from spec_tests.strategies.layers import (
    KINDS,
    WIDTH,
    Convolution,
    Recurrent,
    Scaled,
    seeded,
    square_layer,
)
from spec_tests.strategies.tensors import TensorSpec


class Attention(nn.Module):
    """A module that applies an attention layer. Each input row is a sequence of length 1."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer. Each row is a sequence of length 1."""
        result: Tensor = self.layer(x[:, None, :])[:, 0]
        return result


def _linear_with_hooks() -> nn.Module:
    layer = square_layer()
    layer.register_forward_hook(add_bias)
    layer.register_forward_hook(add_kwargs, prepend=True, with_kwargs=True, always_call=True)
    layer.register_forward_pre_hook(subtract_weight)
    layer.register_forward_pre_hook(double_input, prepend=True, with_kwargs=True)
    layer.register_full_backward_hook(triple)
    layer.register_full_backward_pre_hook(triple, prepend=True)
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


#: Kind of module -> its constructor. These are the kinds in `KINDS`, and kinds that only
#: `EdgeCaseModule` builds.
EDGE_CASES: Mapping[str, Callable[[], nn.Module]] = {
    **KINDS,
    "convolution": lambda: Convolution(torch.contiguous_format),
    "weight_norm_hook": _weight_norm_linear,
    "spectral_norm_hook": lambda: nn.utils.spectral_norm(square_layer()),
    "spectral_norm": lambda: parametrizations.spectral_norm(square_layer()),
    "rnn": lambda: Recurrent(nn.RNN(WIDTH, WIDTH, num_layers=2, batch_first=True)),
    "projected_lstm": lambda: Recurrent(nn.LSTM(WIDTH, 6, proj_size=WIDTH, batch_first=True)),
    "transformer": _transformer_layer,
    "bilinear": lambda: SquaredRows(WIDTH),
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
    "slotted": SlotsLinear,
    "complex": lambda: Scaled(torch.rand(WIDTH, dtype=torch.complex64)),
    "empty": nn.Identity,
}


def build_edge_case(kind: str) -> nn.Module:
    """Return a new module of a kind of `EDGE_CASES` on the CPU, always with the same values."""
    return seeded(EDGE_CASES[kind])


@dataclass(frozen=True)
class EdgeCaseModule:
    """A description of a module: ``kind`` is a key of `EDGE_CASES`."""

    kind: str

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""
        return build_edge_case(self.kind).to(topology.device(slot))

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""
        return TensorSpec((count, WIDTH), requires_grad=requires_grad, slot=slot)

    def __repr__(self) -> str:
        return self.kind
