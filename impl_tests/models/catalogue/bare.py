"""Models of torch's own modules."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model

__all__ = ["MODELS"]


class Tagger(nn.Module):
    """An LSTM in two directions over embedded words, tied to what it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 50)
        self.out.weight = self.words.weight

    def forward(self, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Predict words; give the last states, batch first."""
        hidden, (state, cell) = self.layers(self.words(tokens))
        return self.out(hidden), (state.transpose(0, 1), cell.transpose(0, 1))


class Bag(nn.Module):
    """Means of embeddings, whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(1000, 8, sparse=True)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify each row."""
        scores: Tensor = self.out(self.words(tokens))
        return scores


@dataclass(frozen=True)
class Scores:
    """What the autoencoder returns: a frozen dataclass with another in it."""

    mean: Tensor
    rest: "Rest"


@dataclass(frozen=True)
class Rest:
    """The other."""

    code: Tensor
    name: str


class Autoencoder(nn.Module):
    """Spectral norm on both layers, dataclasses out."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.utils.parametrizations.weight_norm(nn.Linear(12, 4))
        self.up = nn.utils.parametrizations.orthogonal(nn.Linear(4, 12))

    def forward(self, x: Tensor) -> Scores:
        """Encode and decode."""
        code = self.down(x).tanh()
        return Scores(self.up(code), Rest(code, "code"))


def _tokens(rows: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 50, (rows, 6)),)


def _squares(output: Tensor) -> Tensor:
    return output.square().mean()


def _transformer() -> nn.Module:
    return nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)


def _of_fields(output: Any) -> Tensor:
    return _squares(output.mean) + _squares(output.rest.code)


MODELS = [
    Model(
        "LSTM tagger",
        "torch",
        "RNN in two directions, tied weights",
        Tagger,
        _tokens,
        lambda output: _squares(output[0]),
    ),
    Model("Embedding bag", "torch", "sparse gradients", Bag, _tokens, _squares),
    Model(
        "Autoencoder",
        "torch",
        "frozen dataclasses out; parametrized weights",
        Autoencoder,
        lambda rows: (torch.randn(rows, 12),),
        _of_fields,
        reference="refuses a dataclass, which is not iterable",
    ),
    Model(
        "nn.Transformer",
        "torch",
        "two inputs",
        _transformer,
        lambda rows: (torch.randn(rows, 5, 16), torch.randn(rows, 4, 16)),
        _squares,
    ),
]
