"""Models from the package transformers that take images and another input (text or points)."""

from typing import Any

import torch
from torch import nn

from impl_tests.models.configurations import SMALL, VOCABULARY_SIZE, build_model
from impl_tests.models.model import HOOKS, Model, draw_images

__all__ = ["MODELS"]


def _build_clip() -> nn.Module:
    text = {
        **SMALL,
        "vocab_size": VOCABULARY_SIZE,
        "max_position_embeddings": 8,
        "eos_token_id": 2,
    }
    vision = {**SMALL, "image_size": 16, "patch_size": 8}
    return build_model(
        "CLIPModel", "CLIPConfig", text_config=text, vision_config=vision, projection_dim=8
    )


def _build_llava() -> nn.Module:
    import transformers

    return build_model(
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        text_config=transformers.LlamaConfig(
            **SMALL, vocab_size=VOCABULARY_SIZE, num_key_value_heads=2
        ),
        vision_config=transformers.CLIPVisionConfig(**SMALL, image_size=16, patch_size=8),
        image_token_id=1,
        vision_feature_layer=-1,
    )


def _draw_captioned_images(rows: int) -> dict[str, Any]:
    words = torch.randint(3, VOCABULARY_SIZE, (rows, 6))
    tokens = torch.cat(
        [torch.ones(rows, 4, dtype=torch.long), words], 1
    )  # Four tokens for an image.
    return {"input_ids": tokens, "pixel_values": draw_images(rows), "labels": tokens.clone()}


def _draw_texts_and_images(rows: int) -> dict[str, Any]:
    return {
        "input_ids": torch.randint(3, VOCABULARY_SIZE, (rows, 8)),
        "pixel_values": draw_images(rows),
    }


def _build_sam() -> nn.Module:
    return build_model(
        "SamModel",
        "SamConfig",
        vision_config={
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
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 32,
            "patch_size": 8,
            "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
            "iou_head_depth": 2,
        },
    )


MODELS = [
    Model(
        "CLIP",
        "transformers",
        "two inputs, two towers; nested outputs",
        _build_clip,
        _draw_texts_and_images,
        loss=lambda output: (output["text_embeds"] - output["image_embeds"]).square().mean(),
        # The elements of these outputs compare each row with all rows of the batch.
        not_compared=(".logits_per_image", ".logits_per_text"),
    ),
    Model(
        "LLaVA",
        "transformers",
        "image features in place of tokens",
        _build_llava,
        _draw_captioned_images,
        reference=HOOKS,
    ),
    Model(
        "SAM",
        "transformers",
        "masks from prompt points",
        _build_sam,
        lambda rows: {
            "pixel_values": draw_images(rows, 32),
            "input_points": torch.rand(rows, 1, 2, 2) * 16,
        },
        loss=lambda output: (
            output["pred_masks"].square().mean() + output["iou_scores"].square().mean()
        ),
    ),
]
