"""Networks of image generators from the package diffusers."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model

__all__ = ["MODELS"]

#: Why torch.nn.parallel fails on the output classes of diffusers.
_OUTPUTS = (
    "passes pairs of names and values to the outputs' class, which takes the iterator for the"
    " value of its first field"
)


def _build_unet() -> nn.Module:
    import diffusers

    module: nn.Module = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
    )
    return module


def _draw_noisy_images(rows: int) -> dict[str, Any]:
    return {
        "sample": torch.randn(rows, 4, 8, 8),
        "timestep": torch.randint(0, 1000, (rows,)),
        "encoder_hidden_states": torch.randn(rows, 5, 8),
    }


def _build_autoencoder() -> nn.Module:
    import diffusers

    module: nn.Module = diffusers.AutoencoderKL(
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
    )
    return module


def _squared_error(output: Any) -> Tensor:
    loss: Tensor = (output["sample"] - 1).square().mean()
    return loss


MODELS = [
    Model(
        "UNet",
        "diffusers",
        "denoising, given a time step and text; a dict that is a dataclass",
        _build_unet,
        _draw_noisy_images,
        _squared_error,
        reference=_OUTPUTS,
    ),
    Model(
        "AutoencoderKL",
        "diffusers",
        "images encoded and decoded; a dict that is a dataclass",
        _build_autoencoder,
        lambda rows: (torch.randn(rows, 3, 16, 16),),
        _squared_error,
        reference=_OUTPUTS,
    ),
]
