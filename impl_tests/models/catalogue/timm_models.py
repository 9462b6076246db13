"""Image models from the package timm."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model, squared_error

__all__ = ["MODELS"]


def _build(name: str, **settings: Any) -> nn.Module:
    import timm

    module: nn.Module = timm.create_model(name, pretrained=False, **settings)
    return module


def _build_mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    module: nn.Module = MlpMixer(
        num_classes=3, img_size=32, patch_size=8, num_blocks=2, embed_dim=16
    )
    return module


def _build_levit() -> nn.Module:
    from timm.models.levit import Levit

    module: nn.Module = Levit(
        img_size=32,
        embed_dim=(16, 24),
        key_dim=8,
        depth=(1, 1),
        num_heads=(2, 3),
        num_classes=3,
    )
    return module


def _draw_images(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, 3, 32, 32),)


def _sum_of_squared_errors(output: list[Tensor]) -> Tensor:
    return torch.stack([squared_error(features) for features in output]).sum()


_PATCHES = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_classes": 3}

MODELS = [
    Model(
        "EfficientNet",
        "timm",
        "depthwise convolutions, squeeze and excite",
        lambda: _build("test_efficientnet", num_classes=3),
        _draw_images,
        squared_error,
    ),
    Model(
        "DeiT",
        "timm",
        "two heads during training",
        lambda: _build("deit_tiny_distilled_patch16_224", num_heads=2, **_PATCHES),
        _draw_images,
        lambda output: squared_error(output if isinstance(output, Tensor) else sum(output)),
    ),
    Model(
        "MLP-Mixer",
        "timm",
        "neither convolution nor attention",
        _build_mixer,
        _draw_images,
        squared_error,
    ),
    Model(
        "NFNet",
        "timm",
        "weights standardized in each forward",
        lambda: _build("test_nfnet", num_classes=3),
        _draw_images,
        squared_error,
    ),
    Model(
        "ByobNet",
        "timm",
        "a list of the features of every stage",
        lambda: _build("test_byobnet", features_only=True),
        _draw_images,
        _sum_of_squared_errors,
    ),
    Model(
        "LeViT",
        "timm",
        "batch norm in attention; attention biases by offset",
        _build_levit,
        _draw_images,
        squared_error,
    ),
    Model(
        "XCiT",
        "timm",
        "attention between channels",
        lambda: _build(
            "xcit_nano_12_p8_224",
            img_size=32,
            patch_size=8,
            embed_dim=16,
            depth=2,
            num_heads=2,
            num_classes=3,
        ),
        _draw_images,
        squared_error,
    ),
]
