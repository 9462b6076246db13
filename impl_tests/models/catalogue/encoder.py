"""Encoders from the package transformers for text, scanned pages and time series."""

from typing import Any

import torch
from torch import nn

from impl_tests.models.configurations import build_model, define, draw_tokens
from impl_tests.models.model import NO_PARAMETERS_REASON, SHARED_HOOKS_REASON, Model

__all__ = ["MODELS"]


def _build_big_bird() -> nn.Module:
    settings = {"block_size": 1, "num_random_blocks": 1, "max_position_embeddings": 32}
    net = build_model("BigBirdForMaskedLM", settings)
    for module in net.modules():
        if type(module).__name__ == "BigBirdBlockSparseAttention":
            _keep_in_evaluation(module)
    return net


def _keep_in_evaluation(module: nn.Module) -> None:
    """Keep a BigBird attention in evaluation mode, where its blocks are fixed.

    In training mode it draws random blocks with numpy's global generator. All replicas seed this
    generator at the same time, so the blocks would differ from run to run.
    """
    module.eval()
    module.train = lambda mode=True: module  # type: ignore[method-assign]


def _draw_labelled_tokens(rows: int) -> dict[str, Any]:
    return {"input_ids": draw_tokens(rows), "labels": draw_tokens(rows)}


def _draw_labelled_tokens_requesting_all_outputs(rows: int) -> dict[str, Any]:
    return {**_draw_labelled_tokens(rows), "output_hidden_states": True, "output_attentions": True}


def _draw_pages(rows: int) -> dict[str, Any]:
    boxes = torch.arange(4).expand(rows, 8, 4).contiguous()
    return {"input_ids": draw_tokens(rows), "bbox": boxes, "labels": torch.randint(3, (rows, 8))}


def _draw_series(rows: int) -> dict[str, Any]:
    return {
        "past_values": torch.randn(rows, 6),
        "past_time_features": torch.randn(rows, 6, 1),
        "past_observed_mask": torch.ones(rows, 6),
        "future_values": torch.randn(rows, 3),
        "future_time_features": torch.randn(rows, 3, 1),
    }


MODELS = [
    define(
        "BERT",
        "returns hidden states and attentions",
        "BertForMaskedLM",
        {"attn_implementation": "eager"},
        _draw_labelled_tokens_requesting_all_outputs,
        reference=SHARED_HOOKS_REASON,
    ),
    define(
        "DeBERTa-v2",
        "separate attention to positions and contents",
        "DebertaV2ForMaskedLM",
        {"relative_attention": True, "pos_att_type": "p2c|c2p"},
        _draw_labelled_tokens,
    ),
    define(
        "Longformer",
        "windowed attention, by strided views",
        "LongformerForMaskedLM",
        {"attention_window": 4, "max_position_embeddings": 32},
        _draw_labelled_tokens,
    ),
    Model(
        "BigBird", "transformers", "block-sparse attention", _build_big_bird, _draw_labelled_tokens
    ),
    define(
        "Perceiver",
        "cross-attention from a few latents",
        "PerceiverForMaskedLM",
        {
            "num_latents": 4,
            "d_latents": 16,
            "d_model": 16,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "max_position_embeddings": 8,
        },
        lambda rows: {"inputs": draw_tokens(rows), "labels": draw_tokens(rows)},
    ),
    define(
        "LayoutLM",
        "two inputs: tokens and their boxes",
        "LayoutLMForTokenClassification",
        {"max_2d_position_embeddings": 32, "num_labels": 3},
        _draw_pages,
        reference=NO_PARAMETERS_REASON,
    ),
    define(
        "TimeSeriesTransformer",
        "five inputs; a likelihood loss",
        "TimeSeriesTransformerForPrediction",
        {
            "prediction_length": 3,
            "context_length": 5,
            "num_hidden_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "lags_sequence": [1],
            "num_time_features": 1,
        },
        _draw_series,
    ),
    define(
        "PatchTST",
        "patches of time series",
        "PatchTSTForPrediction",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "num_hidden_layers": 1,
            "ffn_dim": 16,
            "prediction_length": 4,
            "norm_type": "layernorm",
        },
        lambda rows: {
            "past_values": torch.randn(rows, 16, 2),
            "future_values": torch.randn(rows, 4, 2),
        },
    ),
]
