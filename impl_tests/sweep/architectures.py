"""The architectures of transformers, timm and torchvision."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from . import transformers_models

__all__ = ["make", "names"]

_ROWS = transformers_models.ROWS
_MOST_PARAMETERS = transformers_models.MOST_PARAMETERS


def names() -> list[str]:
    """Return a name for each type of transformers, and each file with models of the others."""
    return [
        *(f"transformers/{kind}" for kind in transformers_models.names()),
        *(f"timm/{module}" for module in _timm_models()),
        *(f"torchvision/{module}" for module in _torchvision_models()),
    ]


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a small model with random weights, and inputs that its forward takes.

    Raises:
        ValueError: There is none; the text has errors.
    """
    package, _, kind = name.partition("/")
    if package == "transformers":
        return transformers_models.make(kind)
    errors: list[str] = []
    candidates = {"timm": _make_timm, "torchvision": _make_torchvision}[package](kind)
    for build, inputs in candidates:
        try:
            with torch.device("meta"):
                count = sum(weight.numel() for weight in build().parameters())
            if count > _MOST_PARAMETERS:
                raise ValueError(f"{count} parameters")
            torch.manual_seed(0)
            module = build().eval()
            with torch.no_grad():
                module(**inputs)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:200])
        else:
            return module, inputs
    raise ValueError(" | ".join(dict.fromkeys([*errors[:1], *errors[-1:]])))


def _timm_models() -> dict[str, list[str]]:
    """Return the models in each file of timm, those with the shortest names first."""
    import timm

    found = {module: timm.list_models(module=module) for module in timm.list_modules()}
    return {module: sorted(models, key=_by_size) for module, models in found.items() if models}


def _by_size(name: str) -> tuple[bool, bool, int]:
    small = any(word in name for word in ("tiny", "nano", "atto", "pico", "small", "xxs", "_s"))
    return not name.startswith("test_"), not small, len(name)


def _make_timm(module: str) -> Iterator[tuple[Any, dict[str, Tensor]]]:
    import timm

    for name in _timm_models()[module][:3]:
        for size, options in ((64, {"img_size": 64}), (64, {}), (224, {})):
            yield (
                lambda name=name, options=options: timm.create_model(
                    name, num_classes=3, **options
                ),
                {"x": torch.randn(_ROWS, 3, size, size)},
            )


def _torchvision_models() -> dict[str, list[str]]:
    from torchvision import models

    found: dict[str, list[str]] = {}
    for name in sorted(models.list_models(), key=len):
        module = models.get_model_builder(name).__module__
        found.setdefault(module.removeprefix("torchvision.models."), []).append(name)
    return found


def _make_torchvision(module: str) -> Iterator[tuple[Any, dict[str, Tensor]]]:
    from torchvision import models

    shapes = ((3, 64, 64), (3, 224, 224), (3, 16, 64, 64), (3, 16, 224, 224))
    for name in _torchvision_models()[module][:2]:
        backbone = {"weights_backbone": None} if module[:5] in ("segme", "detec") else {}

        def build(name: str = name, options: dict[str, None] = backbone) -> nn.Module:
            module: nn.Module = models.get_model(name, weights=None, **options)
            return module

        if "optical_flow" in module:
            yield build, {key: torch.randn(_ROWS, 3, 128, 128) for key in ("image1", "image2")}
        key = "images" if "detection" in module else "input" if "lraspp" in module else "x"
        for shape in shapes:
            yield build, {key: torch.randn(_ROWS, *shape)}
