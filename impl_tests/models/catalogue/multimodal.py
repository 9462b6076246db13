"""Models from the package transformers that take images and another input (text or points)."""

from typing import Any

import torch

from impl_tests.models.configurations import SMALL, VOCABULARY_SIZE, define, draw_tokens
from impl_tests.models.model import SHARED_HOOKS_REASON, draw_images

__all__ = ["MODELS"]

_TEXT = {**SMALL, "vocab_size": VOCABULARY_SIZE}
_VISION = {**SMALL, "image_size": 16, "patch_size": 8}


def _draw_captioned_images(rows: int) -> dict[str, Any]:
    image = torch.ones(rows, 4, dtype=torch.long)  # Each image takes four tokens.
    tokens = torch.cat([image, draw_tokens(rows, 6)], 1)
    return {"input_ids": tokens, "pixel_values": draw_images(rows), "labels": tokens.clone()}


MODELS = [
    define(
        "CLIP",
        "two inputs, two towers; nested outputs",
        "CLIPModel",
        {
            "text_config": {**_TEXT, "max_position_embeddings": 8, "eos_token_id": 2},
            "vision_config": _VISION,
            "projection_dim": 8,
        },
        lambda rows: {"input_ids": draw_tokens(rows), "pixel_values": draw_images(rows)},
        loss=lambda output: (output["text_embeds"] - output["image_embeds"]).square().mean(),
        # The elements of these outputs compare each row with all rows of the batch.
        not_compared=(".logits_per_image", ".logits_per_text"),
    ),
    define(
        "LLaVA",
        "image features in place of tokens",
        "LlavaForConditionalGeneration",
        {
            "text_config": {**_TEXT, "model_type": "llama", "num_key_value_heads": 2},
            "vision_config": {**_VISION, "model_type": "clip_vision_model"},
            "image_token_id": 1,
            "vision_feature_layer": -1,
        },
        _draw_captioned_images,
        reference=SHARED_HOOKS_REASON,
    ),
    define(
        "SAM",
        "masks from prompt points",
        "SamModel",
        {
            "vision_config": {
                "hidden_size": 16,
                "output_channels": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 32,
                "patch_size": 8,
                "mlp_dim": 16,
                "window_size": 2,
                "global_attn_indexes": [0],
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {
                "hidden_size": 16,
                "image_size": 32,
                "patch_size": 8,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
                "iou_head_depth": 2,
            },
        },
        lambda rows: {
            "pixel_values": draw_images(rows, 32),
            "input_points": torch.rand(rows, 1, 2, 2) * 16,
        },
        loss=lambda output: (
            output["pred_masks"].square().mean() + output["iou_scores"].square().mean()
        ),
    ),
]
