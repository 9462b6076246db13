"""The models to train, grouped by kind and package."""

from collections.abc import Mapping

from impl_tests.models.model import Model

from . import (
    audio,
    diffusers_models,
    encoder,
    encoder_decoder,
    language,
    multimodal,
    recurrent,
    timm_models,
    torch_modules,
    torchvision_models,
    vision,
)

__all__ = ["MODELS"]

_MODULES = (
    language,
    recurrent,
    encoder_decoder,
    encoder,
    vision,
    multimodal,
    audio,
    torchvision_models,
    timm_models,
    diffusers_models,
    torch_modules,
)
#: Name -> model, in the order of the published table.
MODELS: Mapping[str, Model] = {model.name: model for module in _MODULES for model in module.MODELS}
