"""Audio models from the package transformers."""

from typing import Any

import torch

from impl_tests.models.configurations import define, draw_tokens

__all__ = ["MODELS"]

_SPEECH: dict[str, Any] = {
    "conv_dim": [8, 8],
    "conv_stride": [4, 4],
    "conv_kernel": [4, 4],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "ctc_loss_reduction": "mean",
}


def _draw_audio(rows: int) -> dict[str, Any]:
    return {"input_values": torch.randn(rows, 256), "labels": draw_tokens(rows, 4)}


MODELS = [
    define(
        "Whisper",
        "speech; encoder and decoder",
        "WhisperForConditionalGeneration",
        {
            "num_mel_bins": 8,
            "num_hidden_layers": 1,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_source_positions": 8,
            "max_target_positions": 8,
            "decoder_start_token_id": 1,
        },
        lambda rows: {"input_features": torch.randn(rows, 8, 16), "labels": draw_tokens(rows, 6)},
    ),
    define(
        "Wav2Vec2", "speech; weight norm; the CTC loss", "Wav2Vec2ForCTC", _SPEECH, _draw_audio
    ),
    define(
        "Hubert",
        "speech; batch norm in the positional convolution; the CTC loss",
        "HubertForCTC",
        {**_SPEECH, "conv_pos_batch_norm": True},
        _draw_audio,
    ),
    define(
        "AST",
        "spectrograms as images",
        "ASTForAudioClassification",
        {
            "patch_size": 4,
            "frequency_stride": 4,
            "time_stride": 4,
            "max_length": 16,
            "num_mel_bins": 8,
            "num_labels": 3,
        },
        lambda rows: {"input_values": torch.randn(rows, 16, 8), "labels": torch.arange(rows) % 3},
    ),
    define(
        "EnCodec",
        "LSTM; codes with the batch in the second dimension",
        "EncodecModel",
        {
            "hidden_size": 8,
            "num_filters": 4,
            "upsampling_ratios": [2, 2],
            "num_lstm_layers": 1,
            "codebook_size": 8,
        },
        lambda rows: {"input_values": torch.randn(rows, 1, 64)},
        loss=lambda output: output["audio_values"].square().mean(),
        not_compared=(".audio_codes",),  # The batch of these codes is dimension 1.
    ),
]
