"""Models built from modules of torch.nn."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model

__all__ = ["MODELS"]


class Tagger(nn.Module):
    """A bidirectional LSTM over embedded words; the output layer is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 50)
        self.out.weight = self.words.weight

    def forward(self, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return predictions and the last states, batch first."""
        hidden, (state, cell) = self.layers(self.words(tokens))
        return self.out(hidden), (state.transpose(0, 1), cell.transpose(0, 1))


class BagOfWords(nn.Module):
    """A linear layer on means of embeddings. The gradients of the embeddings are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(1000, 8, sparse=True)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of each row."""
        scores: Tensor = self.out(self.words(tokens))
        return scores


@dataclass(frozen=True)
class AutoencoderOutput:
    """The autoencoder's output: a frozen dataclass that contains an Encoding."""

    mean: Tensor
    code: "Encoding"


@dataclass(frozen=True)
class Encoding:
    """The hidden representation of an autoencoder."""

    value: Tensor
    name: str


class Autoencoder(nn.Module):
    """An autoencoder with parametrized weights that returns dataclasses."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.utils.parametrizations.weight_norm(nn.Linear(12, 4))
        self.up = nn.utils.parametrizations.orthogonal(nn.Linear(4, 12))

    def forward(self, x: Tensor) -> AutoencoderOutput:
        """Encode and decode ``x``."""
        code = self.down(x).tanh()
        return AutoencoderOutput(self.up(code), Encoding(code, "code"))


def _draw_tokens(rows: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 50, (rows, 6)),)


def _mean_square(output: Tensor) -> Tensor:
    return output.square().mean()


def _autoencoder_loss(output: Any) -> Tensor:
    return _mean_square(output.mean) + _mean_square(output.code.value)


MODELS = [
    Model(
        "LSTM tagger",
        "torch",
        "bidirectional LSTM, tied weights",
        Tagger,
        _draw_tokens,
        lambda output: _mean_square(output[0]),
    ),
    Model("Embedding bag", "torch", "sparse gradients", BagOfWords, _draw_tokens, _mean_square),
    Model(
        "Autoencoder",
        "torch",
        "frozen dataclasses as outputs; parametrized weights",
        Autoencoder,
        lambda rows: (torch.randn(rows, 12),),
        _autoencoder_loss,
        reference="refuses a dataclass, which is not iterable",
    ),
    Model(
        "nn.Transformer",
        "torch",
        "two inputs",
        lambda: nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True),
        lambda rows: (torch.randn(rows, 5, 16), torch.randn(rows, 4, 16)),
        _mean_square,
    ),
]
