"""Vision models from the package transformers."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configurations import SMALL, build_model
from impl_tests.models.model import HOOKS, Model, draw_images

__all__ = ["MODELS"]


def _draw_labelled_images(rows: int) -> dict[str, Any]:
    return {"pixel_values": draw_images(rows), "labels": torch.arange(rows) % 3}


def _detection_loss(output: Any) -> Tensor:
    """Return the sum of the mean squares of a detector's outputs."""
    loss: Tensor = output["logits"].square().mean() + output["pred_boxes"].square().mean()
    return loss


def _build_yolos() -> nn.Module:
    return build_model(
        "YolosForObjectDetection",
        "YolosConfig",
        **SMALL,
        image_size=[16, 16],
        patch_size=8,
        num_detection_tokens=3,
        num_labels=2,
    )


def _build_detr() -> nn.Module:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    return build_model(
        "DetrForObjectDetection",
        "DetrConfig",
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=3,
        num_labels=2,
    )


MODELS = [
    Model(
        "ViT",
        "transformers",
        "image patches as tokens",
        lambda: build_model(
            "ViTForImageClassification",
            "ViTConfig",
            **SMALL,
            image_size=16,
            patch_size=8,
            num_labels=3,
        ),
        _draw_labelled_images,
    ),
    Model(
        "Swin",
        "transformers",
        "shifted windows; stages",
        lambda: build_model(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[2, 2],
            num_heads=[1, 2],
            window_size=4,
            num_labels=3,
        ),
        _draw_labelled_images,
    ),
    Model(
        "ConvNeXt V2",
        "transformers",
        "only convolutions",
        lambda: build_model(
            "ConvNextV2ForImageClassification",
            "ConvNextV2Config",
            hidden_sizes=[8, 8],
            depths=[1, 1],
            num_stages=2,
            num_labels=3,
            image_size=16,
            patch_size=2,
        ),
        _draw_labelled_images,
    ),
    Model(
        "SegFormer",
        "transformers",
        "segmentation",
        lambda: build_model(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[2, 1],
            hidden_sizes=[8, 16],
            patch_sizes=[3, 3],
            strides=[2, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=8,
            num_labels=3,
        ),
        lambda rows: {
            "pixel_values": draw_images(rows),
            "labels": torch.randint(0, 3, (rows, 16, 16)),
        },
        reference=HOOKS,
    ),
    Model(
        "DETR",
        "transformers",
        "detection: a convolutional backbone, then queries",
        _build_detr,
        lambda rows: {"pixel_values": draw_images(rows, 32)},
        loss=_detection_loss,
    ),
    Model(
        "YOLOS",
        "transformers",
        "detection by extra tokens",
        _build_yolos,
        lambda rows: {"pixel_values": draw_images(rows)},
        loss=_detection_loss,
    ),
    Model(
        "VideoMAE",
        "transformers",
        "video",
        lambda: build_model(
            "VideoMAEForVideoClassification",
            "VideoMAEConfig",
            **SMALL,
            image_size=16,
            patch_size=8,
            num_frames=4,
            num_labels=3,
            use_mean_pooling=True,
        ),
        lambda rows: {
            "pixel_values": torch.randn(rows, 4, 3, 16, 16),
            "labels": torch.arange(rows) % 3,
        },
    ),
]
