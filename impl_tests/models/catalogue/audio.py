"""Audio models from the package transformers."""

from typing import Any

import torch

from impl_tests.models.configurations import SMALL, VOCABULARY_SIZE, build_model
from impl_tests.models.model import Model

__all__ = ["MODELS"]

_SPEECH: dict[str, Any] = {
    **SMALL,
    "vocab_size": VOCABULARY_SIZE,
    "pad_token_id": 0,
    "conv_dim": [8, 8],
    "conv_stride": [4, 4],
    "conv_kernel": [4, 4],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "ctc_loss_reduction": "mean",
}


def _draw_tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY_SIZE, (rows, length))


def _draw_audio(rows: int) -> dict[str, Any]:
    return {"input_values": torch.randn(rows, 256), "labels": _draw_tokens(rows, 4)}


MODELS = [
    Model(
        "Whisper",
        "transformers",
        "speech; encoder and decoder",
        lambda: build_model(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            vocab_size=VOCABULARY_SIZE,
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
        lambda rows: {"input_features": torch.randn(rows, 8, 16), "labels": _draw_tokens(rows, 6)},
    ),
    Model(
        "Wav2Vec2",
        "transformers",
        "speech; weight norm; the CTC loss",
        lambda: build_model(
            "Wav2Vec2ForCTC",
            "Wav2Vec2Config",
            **_SPEECH,
        ),
        _draw_audio,
    ),
    Model(
        "Hubert",
        "transformers",
        "speech; batch norm in the positional convolution; the CTC loss",
        lambda: build_model(
            "HubertForCTC",
            "HubertConfig",
            **_SPEECH,
            conv_pos_batch_norm=True,
        ),
        _draw_audio,
    ),
    Model(
        "AST",
        "transformers",
        "spectrograms as images",
        lambda: build_model(
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
        "LSTM; codes with the batch in the second dimension",
        lambda: build_model(
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
        not_compared=(".audio_codes",),  # Its batch dimension is 1, but gather joins dimension 0.
    ),
]
