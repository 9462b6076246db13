"""diffusers: pipelines, which have several modules and are no module."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import diffusers
import torch
from torch import Tensor

from . import Use, Variant


def _pipeline() -> Any:
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )
    pipeline = diffusers.DDIMPipeline(unet.eval(), diffusers.DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _draw(pipeline: Any, images: range) -> Tensor:
    """Draw images, each with its own seed."""
    generators = [torch.Generator().manual_seed(image) for image in images]
    drawn: Tensor = pipeline(
        len(images), generators, num_inference_steps=3, output_type="pt"
    ).images
    return torch.as_tensor(drawn)


def _wrap_the_network(variant: Variant) -> Tensor:
    """Each step of the pipeline computes its batch on all devices."""
    pipeline = _pipeline().to(variant.device)
    pipeline.unet = wrapper = variant.wrap(pipeline.unet)
    wrapper.module_attributes = True
    with torch.no_grad(), getattr(wrapper, "hold", nullcontext)():
        return _draw(pipeline, range(5))


def _copy_the_pipeline(variant: Variant) -> Tensor:
    """Each device has a pipeline of its own, which draws a part of the images."""
    pipelines = [copy.deepcopy(_pipeline()).to(device) for device in variant.device_ids or ["cpu"]]
    if len(pipelines) == 1:
        return _draw(pipelines[0], range(5))
    draw = [partial(_draw, pipeline) for pipeline in pipelines]
    library = variant.library
    outputs = library.parallel_apply(draw, [range(3), range(3, 5)], devices=variant.device_ids)
    images: Tensor = library.gather(outputs, variant.device)
    return images


USES: Mapping[str, Use] = {
    "DDIMPipeline, a wrapper in place of its network": _wrap_the_network,
    "DDIMPipeline, a copy for each device": _copy_the_pipeline,
}
