"""Models of transformers that encode: text, tables, series of numbers, pages."""

from typing import Any

import torch
from torch import nn

from impl_tests.models.configuring import SMALL, TOKENS, made
from impl_tests.models.model import HOOKS, NO_PARAMETERS, Model

__all__ = ["MODELS"]

_TEXT: dict[str, Any] = {**SMALL, "vocab_size": TOKENS, "pad_token_id": 0}


def _tokens(rows: int) -> torch.Tensor:
    return torch.randint(3, TOKENS, (rows, 8))


def _big_bird() -> nn.Module:
    net = made(
        "BigBirdForMaskedLM",
        "BigBirdConfig",
        **_TEXT,
        sep_token_id=2,
        attention_type="block_sparse",
        block_size=1,
        num_random_blocks=1,
        max_position_embeddings=32,
    )
    for module in net.modules():
        if type(module).__name__ == "BigBirdBlockSparseAttention":
            _keep_in_evaluation(module)
    return net


def _keep_in_evaluation(module: nn.Module) -> None:
    """Make BigBird attend to the first block, as in evaluation, not to random blocks.

    Random blocks come from numpy's global generator, which replicas seed at the same time.
    """
    module.eval()
    module.train = lambda mode=True: module  # type: ignore[method-assign]


def _masked(rows: int) -> dict[str, Any]:
    return {"input_ids": _tokens(rows), "labels": _tokens(rows)}


def _everything(rows: int) -> dict[str, Any]:
    return {**_masked(rows), "output_hidden_states": True, "output_attentions": True}


def _page(rows: int) -> dict[str, Any]:
    boxes = torch.arange(4).expand(rows, 8, 4).contiguous()
    return {"input_ids": _tokens(rows), "bbox": boxes, "labels": torch.randint(0, 3, (rows, 8))}


def _bytes(rows: int) -> dict[str, Any]:
    return {"inputs": _tokens(rows), "labels": _tokens(rows)}


def _series(rows: int) -> dict[str, Any]:
    return {
        "past_values": torch.randn(rows, 6),
        "past_time_features": torch.randn(rows, 6, 1),
        "past_observed_mask": torch.ones(rows, 6),
        "future_values": torch.randn(rows, 3),
        "future_time_features": torch.randn(rows, 3, 1),
    }


def _patches(rows: int) -> dict[str, Any]:
    return {"past_values": torch.randn(rows, 16, 2), "future_values": torch.randn(rows, 4, 2)}


MODELS = [
    Model(
        "BERT",
        "transformers",
        "asked for hidden states and attentions",
        lambda: made("BertForMaskedLM", "BertConfig", **_TEXT, attn_implementation="eager"),
        _everything,
        reference=HOOKS,
    ),
    Model(
        "DeBERTa-v2",
        "transformers",
        "positions and contents apart",
        lambda: made(
            "DebertaV2ForMaskedLM",
            "DebertaV2Config",
            **_TEXT,
            relative_attention=True,
            pos_att_type="p2c|c2p",
        ),
        _masked,
    ),
    Model(
        "Longformer",
        "transformers",
        "windows of attention, by strides",
        lambda: made(
            "LongformerForMaskedLM",
            "LongformerConfig",
            **_TEXT,
            attention_window=4,
            max_position_embeddings=32,
        ),
        _masked,
    ),
    Model(
        "BigBird",
        "transformers",
        "block-sparse attention",
        _big_bird,
        _masked,
    ),
    Model(
        "Perceiver",
        "transformers",
        "few latents that read everything",
        lambda: made(
            "PerceiverForMaskedLM",
            "PerceiverConfig",
            vocab_size=TOKENS,
            num_latents=4,
            d_latents=16,
            d_model=16,
            num_blocks=1,
            num_self_attends_per_block=1,
            num_self_attention_heads=2,
            num_cross_attention_heads=2,
            qk_channels=16,
            v_channels=16,
            max_position_embeddings=8,
        ),
        _bytes,
    ),
    Model(
        "LayoutLM",
        "transformers",
        "two inputs: words and their boxes",
        lambda: made(
            "LayoutLMForTokenClassification",
            "LayoutLMConfig",
            **_TEXT,
            max_2d_position_embeddings=32,
            num_labels=3,
        ),
        _page,
        reference=NO_PARAMETERS,
        ours=NO_PARAMETERS,
    ),
    Model(
        "TimeSeriesTransformer",
        "transformers",
        "five inputs; the loss of a distribution",
        lambda: made(
            "TimeSeriesTransformerForPrediction",
            "TimeSeriesTransformerConfig",
            prediction_length=3,
            context_length=5,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            lags_sequence=[1],
            num_time_features=1,
        ),
        _series,
    ),
    Model(
        "PatchTST",
        "transformers",
        "patches of series",
        lambda: made(
            "PatchTSTForPrediction",
            "PatchTSTConfig",
            num_input_channels=2,
            context_length=16,
            patch_length=4,
            patch_stride=4,
            num_hidden_layers=1,
            d_model=16,
            num_attention_heads=2,
            ffn_dim=16,
            prediction_length=4,
            norm_type="layernorm",
        ),
        _patches,
    ),
]
