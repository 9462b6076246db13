"""All models, by name."""

from collections.abc import Mapping

from impl_tests.models.model import Model

from . import (
    asking,
    bare,
    encoding,
    generating,
    hearing,
    language,
    recurring,
    seeing,
    timm_models,
    torchvision_models,
    translating,
)

__all__ = ["MODELS"]

_CHAPTERS = (
    language,
    recurring,
    translating,
    encoding,
    seeing,
    asking,
    hearing,
    torchvision_models,
    timm_models,
    generating,
    bare,
)
#: In the order in which they are published.
MODELS: Mapping[str, Model] = {
    model.name: model for chapter in _CHAPTERS for model in chapter.MODELS
}
