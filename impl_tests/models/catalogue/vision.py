"""Vision models from the package transformers."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configurations import build_model, define
from impl_tests.models.model import SHARED_HOOKS_REASON, Model, draw_images

__all__ = ["MODELS"]


def _draw_labelled_images(rows: int) -> dict[str, Any]:
    return {"pixel_values": draw_images(rows), "labels": torch.arange(rows) % 3}


def _detection_loss(output: Any) -> Tensor:
    """Return the sum of the mean squares of a detector's outputs."""
    loss: Tensor = output["logits"].square().mean() + output["pred_boxes"].square().mean()
    return loss


def _build_detr() -> nn.Module:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    settings = {
        "backbone_config": backbone,
        "num_hidden_layers": 1,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "num_queries": 3,
    }
    return build_model("DetrForObjectDetection", settings)


MODELS = [
    define(
        "ViT",
        "image patches as tokens",
        "ViTForImageClassification",
        {"image_size": 16, "patch_size": 8, "num_labels": 3},
        _draw_labelled_images,
    ),
    define(
        "Swin",
        "shifted windows; stages",
        "SwinForImageClassification",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_attention_heads": [1, 2],
            "window_size": 4,
            "num_labels": 3,
        },
        _draw_labelled_images,
    ),
    define(
        "ConvNeXt V2",
        "only convolutions",
        "ConvNextV2ForImageClassification",
        {"hidden_sizes": [8, 8], "depths": [1, 1], "patch_size": 2, "num_labels": 3},
        _draw_labelled_images,
    ),
    define(
        "SegFormer",
        "segmentation",
        "SegformerForSemanticSegmentation",
        {
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 8,
            "num_labels": 3,
        },
        lambda rows: {
            "pixel_values": draw_images(rows),
            "labels": torch.randint(0, 3, (rows, 16, 16)),
        },
        reference=SHARED_HOOKS_REASON,
    ),
    Model(
        "DETR",
        "transformers",
        "detection: a convolutional backbone, then queries",
        _build_detr,
        lambda rows: {"pixel_values": draw_images(rows, 32)},
        _detection_loss,
    ),
    define(
        "YOLOS",
        "detection by extra tokens",
        "YolosForObjectDetection",
        {"image_size": [16, 16], "patch_size": 8, "num_detection_tokens": 3},
        lambda rows: {"pixel_values": draw_images(rows)},
        loss=_detection_loss,
    ),
    define(
        "VideoMAE",
        "video",
        "VideoMAEForVideoClassification",
        {"image_size": 16, "patch_size": 8, "num_frames": 4, "num_labels": 3},
        lambda rows: {
            "pixel_values": torch.randn(rows, 4, 3, 16, 16),
            "labels": torch.arange(rows) % 3,
        },
    ),
]
