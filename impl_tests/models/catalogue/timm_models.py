"""Image models from the package timm."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model, draw_images, squared_error

__all__ = ["MODELS"]


def _build(name: str, settings: dict[str, Any]) -> nn.Module:
    """Return the model ``name``, a function or a class of timm."""
    import timm

    module: nn.Module = getattr(timm.models, name)(**settings)
    return module


def _define(
    name: str,
    covers: str,
    model: str,
    settings: dict[str, Any],
    loss: Callable[[Any], Tensor] = squared_error,
) -> Model:
    build = partial(_build, model, settings)
    return Model(name, "timm", covers, build, lambda rows: (draw_images(rows, 32),), loss)


def _sum_of_squared_errors(output: list[Tensor]) -> Tensor:
    return torch.stack([squared_error(features) for features in output]).sum()


_IMAGES = {"img_size": 32, "num_classes": 3}
_PATCHES = {**_IMAGES, "patch_size": 8, "embed_dim": 16}

MODELS = [
    _define(
        "EfficientNet",
        "depthwise convolutions, squeeze and excite",
        "test_efficientnet",
        {"num_classes": 3},
    ),
    _define(
        "DeiT",
        "two heads during training",
        "deit_tiny_distilled_patch16_224",
        {**_PATCHES, "depth": 2, "num_heads": 2},
        lambda output: squared_error(output if isinstance(output, Tensor) else sum(output)),
    ),
    _define(
        "MLP-Mixer",
        "neither convolution nor attention",
        "MlpMixer",
        {**_PATCHES, "num_blocks": 2},
    ),
    _define("NFNet", "weights standardized in each forward", "test_nfnet", {"num_classes": 3}),
    _define(
        "ByobNet",
        "a list of the features of every stage",
        "test_byobnet",
        {"features_only": True},
        _sum_of_squared_errors,
    ),
    _define(
        "LeViT",
        "batch norm in attention; attention biases by offset",
        "Levit",
        {**_IMAGES, "embed_dim": (16, 24), "key_dim": 8, "depth": (1, 1), "num_heads": (2, 3)},
    ),
    _define(
        "XCiT",
        "attention between channels",
        "xcit_nano_12_p8_224",
        {**_PATCHES, "depth": 2, "num_heads": 2},
    ),
]
