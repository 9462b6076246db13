"""The models to train, grouped by kind and package."""

from collections.abc import Mapping

from impl_tests.models.model import Model

from . import (
    audio,
    diffusers_models,
    encoder,
    language,
    multimodal,
    timm_models,
    torch_modules,
    torchvision_models,
    vision,
)

__all__ = ["MODELS"]

#: Name -> model, in the order of the published table.
MODELS: Mapping[str, Model] = {
    model.name: model
    for models in (
        language.MODELS,
        encoder.MODELS,
        vision.MODELS,
        multimodal.MODELS,
        audio.MODELS,
        torchvision_models.MODELS,
        timm_models.MODELS,
        diffusers_models.MODELS,
        torch_modules.MODELS,
    )
    for model in models
}
