"""Modules and their inputs."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["LAYERS"]

#: A function that draws a CPU tensor.
Input: TypeAlias = Callable[[], Tensor]
Layer: TypeAlias = tuple[Callable[[], nn.Module], tuple[Input, ...]]


def normal(*shape: int) -> Input:
    """Return a function that draws normally distributed numbers."""
    return lambda: torch.randn(shape)


def integers(high: int, *shape: int) -> Input:
    """Return a function that draws integers from 0 to ``high - 1``."""
    return lambda: torch.randint(high, shape)


IMAGE = normal(2, 4, 8, 6)
SEQUENCE = normal(5, 3, 8)
WORDS = integers(10, 3, 4)


class PackedLSTM(nn.Module):
    """An LSTM on a packed sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Pack the padded batch, run the LSTM and pad the outputs."""
        packed = nn.utils.rnn.pack_padded_sequence(x, [4, 3, 1], batch_first=True)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return padded


def _make_encoder(*, norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, norm_first=norm_first, batch_first=True
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _make_channels_last_net() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


def _make_parametrized(register: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    """Return a function that creates a linear layer with the registered parametrization."""
    return lambda: register(nn.Linear(8, 8))


LAYERS: dict[str, Layer] = {
    "Linear": (lambda: nn.Linear(8, 3), (SEQUENCE,)),
    "Bilinear": (lambda: nn.Bilinear(3, 4, 5), (normal(2, 3), normal(2, 4))),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (normal(2, 4, 9),)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1), (IMAGE,)),
    "Conv2d circular": (
        lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular", bias=False),
        (IMAGE,),
    ),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (normal(1, 2, 4, 5, 4),)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), (normal(2, 4, 5),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, output_padding=1), (IMAGE,)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (normal(1, 2, 3, 3, 3),)),
    "channels-last": (
        _make_channels_last_net,
        (lambda: torch.randn(2, 4, 8, 6).to(memory_format=torch.channels_last),),
    ),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (normal(6, 4),)),
    "BatchNorm2d averaging": (lambda: nn.BatchNorm2d(4, momentum=None), (IMAGE,)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), (normal(2, 2, 3, 3, 3),)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (SEQUENCE,)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (SEQUENCE,)),
    "Embedding": (lambda: nn.Embedding(10, 5, padding_idx=1), (WORDS,)),
    "Embedding scaled": (lambda: nn.Embedding(10, 5, scale_grad_by_freq=True), (WORDS,)),
    "Embedding bounded": (lambda: nn.Embedding(10, 5, max_norm=1.0), (WORDS,)),
    "Embedding sparse": (lambda: nn.Embedding(10, 5, sparse=True), (WORDS,)),
    "EmbeddingBag sum": (lambda: nn.EmbeddingBag(10, 5, mode="sum"), (WORDS,)),
    "EmbeddingBag max": (lambda: nn.EmbeddingBag(10, 5, mode="max"), (WORDS,)),
    "EmbeddingBag sparse": (lambda: nn.EmbeddingBag(10, 5, sparse=True), (WORDS,)),
    "RNN": (lambda: nn.RNN(8, 6, 2, nonlinearity="relu"), (SEQUENCE,)),
    "LSTM": (lambda: nn.LSTM(8, 6, 2, bidirectional=True), (SEQUENCE,)),
    "LSTM without bias": (lambda: nn.LSTM(8, 6, bias=False, batch_first=True), (SEQUENCE,)),
    "GRU": (lambda: nn.GRU(8, 6, 2, bidirectional=True), (SEQUENCE,)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 6), (normal(3, 8),)),
    "GRUCell": (lambda: nn.GRUCell(8, 6, bias=False), (normal(3, 8),)),
    "RNNCell": (lambda: nn.RNNCell(8, 6), (normal(3, 8),)),
    "packed LSTM": (PackedLSTM, (normal(3, 4, 8),)),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQUENCE, SEQUENCE, SEQUENCE),
    ),
    "TransformerEncoder": (lambda: _make_encoder(norm_first=False), (SEQUENCE,)),
    "TransformerEncoder norm first": (lambda: _make_encoder(norm_first=True), (SEQUENCE,)),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2),
        (SEQUENCE, normal(4, 3, 8)),
    ),
    "PReLU": (lambda: nn.PReLU(4), (IMAGE,)),
    "AdaptiveLogSoftmax": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0),
        (normal(6, 8), integers(20, 6)),
    ),
    "weight_norm": (_make_parametrized(nn.utils.parametrizations.weight_norm), (SEQUENCE,)),
    "spectral_norm": (_make_parametrized(nn.utils.parametrizations.spectral_norm), (SEQUENCE,)),
    "orthogonal": (_make_parametrized(nn.utils.parametrizations.orthogonal), (SEQUENCE,)),
}
