"""The models to train, grouped by package."""

from collections.abc import Mapping

from impl_tests.models.model import Model

from . import (
    diffusers_models,
    timm_models,
    torch_modules,
    torchvision_models,
    transformers_models,
)

__all__ = ["MODELS"]

#: Name -> model, in the order of the published table.
MODELS: Mapping[str, Model] = {
    model.name: model
    for models in (
        transformers_models.MODELS,
        torchvision_models.MODELS,
        timm_models.MODELS,
        diffusers_models.MODELS,
        torch_modules.MODELS,
    )
    for model in models
}
