"""Networks of image generators from the package diffusers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model, draw_images

__all__ = ["MODELS"]

#: Why torch.nn.parallel fails on the output classes of diffusers.
_OUTPUTS = (
    "passes pairs of names and values to the outputs' class, which takes the iterator for the"
    " value of its first field"
)


def _define(
    name: str,
    covers: str,
    model_class: str,
    settings: dict[str, Any],
    inputs: Callable[[int], dict[str, Any] | tuple[Any, ...]],
) -> Model:
    build = partial(_build, model_class, settings)
    return Model(name, "diffusers", covers, build, inputs, _squared_error, reference=_OUTPUTS)


def _build(name: str, settings: dict[str, Any]) -> nn.Module:
    import diffusers

    module: nn.Module = getattr(diffusers, name)(
        block_out_channels=(8, 16), norm_num_groups=4, **settings
    )
    return module


def _draw_noisy_images(rows: int) -> dict[str, Any]:
    return {
        "sample": torch.randn(rows, 4, 8, 8),
        "timestep": torch.randint(0, 1000, (rows,)),
        "encoder_hidden_states": torch.randn(rows, 5, 8),
    }


def _squared_error(output: Any) -> Tensor:
    loss: Tensor = (output["sample"] - 1).square().mean()
    return loss


MODELS = [
    _define(
        "UNet",
        "denoising, given a time step and text; a dict that is a dataclass",
        "UNet2DConditionModel",
        {
            "sample_size": 8,
            "layers_per_block": 1,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
            "cross_attention_dim": 8,
            "attention_head_dim": 4,
        },
        _draw_noisy_images,
    ),
    _define(
        "AutoencoderKL",
        "images encoded and decoded; a dict that is a dataclass",
        "AutoencoderKL",
        {
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
        },
        lambda rows: (draw_images(rows),),
    ),
]
