"""Models of transformers that hear or speak."""

from typing import Any

import torch

from impl_tests.models.configuring import SMALL, TOKENS, made
from impl_tests.models.model import Model

__all__ = ["MODELS"]

_HEARS: dict[str, Any] = {
    **SMALL,
    "vocab_size": TOKENS,
    "pad_token_id": 0,
    "conv_dim": [8, 8],
    "conv_stride": [4, 4],
    "conv_kernel": [4, 4],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "ctc_loss_reduction": "mean",
}


def _words(rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, TOKENS, (rows, length))


def _heard(rows: int) -> dict[str, Any]:
    return {"input_values": torch.randn(rows, 256), "labels": _words(rows, 4)}


MODELS = [
    Model(
        "Whisper",
        "transformers",
        "speech; reads and writes",
        lambda: made(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            vocab_size=TOKENS,
            num_mel_bins=8,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_source_positions=8,
            max_target_positions=8,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
        lambda rows: {"input_features": torch.randn(rows, 8, 16), "labels": _words(rows, 6)},
    ),
    Model(
        "Wav2Vec2",
        "transformers",
        "speech; a weight that is computed of two; the CTC loss",
        lambda: made(
            "Wav2Vec2ForCTC",
            "Wav2Vec2Config",
            **_HEARS,
        ),
        _heard,
    ),
    Model(
        "Hubert",
        "transformers",
        "speech; batch norm in the positional convolution; the CTC loss",
        lambda: made(
            "HubertForCTC",
            "HubertConfig",
            **_HEARS,
            conv_pos_batch_norm=True,
        ),
        _heard,
    ),
    Model(
        "AST",
        "transformers",
        "spectrograms as images",
        lambda: made(
            "ASTForAudioClassification",
            "ASTConfig",
            **SMALL,
            patch_size=4,
            frequency_stride=4,
            time_stride=4,
            max_length=16,
            num_mel_bins=8,
            num_labels=3,
        ),
        lambda rows: {"input_values": torch.randn(rows, 16, 8), "labels": torch.arange(rows) % 3},
    ),
    Model(
        "EnCodec",
        "transformers",
        "LSTM; codes, of which the batch is the second dimension",
        lambda: made(
            "EncodecModel",
            "EncodecConfig",
            hidden_size=8,
            num_filters=4,
            num_residual_layers=1,
            upsampling_ratios=[2, 2],
            num_lstm_layers=1,
            codebook_size=8,
            codebook_dim=8,
            target_bandwidths=[24.0],
            sampling_rate=24000,
        ),
        lambda rows: {"input_values": torch.randn(rows, 1, 64)},
        loss=lambda output: output["audio_values"].square().mean(),
        apart=(".audio_codes",),  # joined along the first dimension, as everything is
    ),
]
