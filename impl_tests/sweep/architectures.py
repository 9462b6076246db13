"""The architectures of transformers, timm and torchvision."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import transformers_inputs, transformers_models

_ROWS = transformers_inputs.ROWS
#: For the models of transformers without and with a head: the mapping of their classes.
_MAPPINGS = {"transformers": "MODEL_MAPPING", "causal_lm": "MODEL_FOR_CAUSAL_LM_MAPPING"}
_MOST_PARAMETERS = transformers_models.MOST_PARAMETERS


def names() -> list[str]:
    """Return a name for each type of transformers, and for each file with models of the others."""
    return [
        *(
            f"{package}/{kind}"
            for package, mapping in _MAPPINGS.items()
            for kind in transformers_models.names(mapping)
        ),
        *(f"timm/{module}" for module in _timm_models()),
        *(f"torchvision/{module}" for module in _torchvision_models()),
    ]


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a small model with random weights, and inputs that its forward takes.

    Raises:
        ValueError: There is none; the text has errors.
    """
    package, _, kind = name.partition("/")
    if package in _MAPPINGS:
        return transformers_models.make(kind, _MAPPINGS[package])
    errors: list[str] = []
    candidates = {"timm": _make_timm, "torchvision": _make_torchvision}[package](kind)
    for build, inputs in candidates:
        try:
            torch.manual_seed(0)
            module = build().eval()
            count = sum(weight.numel() for weight in module.parameters())
            if count > _MOST_PARAMETERS:
                raise ValueError(f"{count} parameters")
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
        few_layers = {"img_size": 112, "depth": 2}
        for size, options in ((64, {"img_size": 64}), (64, {}), (224, {}), (112, few_layers)):
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

    size = 299 if "inception" in module else 224
    shapes = ((3, 64, 64), (3, size, size), (3, 16, 64, 64), (3, 16, size, size))
    for name in _torchvision_models()[module][:2]:
        no_weights = ["weights", "weights_backbone"][: 1 + (module[:5] in ("segme", "detec"))]
        build = partial(models.get_model, name, **dict.fromkeys(no_weights))
        if "optical_flow" in module:
            yield build, {key: torch.randn(_ROWS, 3, 128, 128) for key in ("image1", "image2")}
        key = "images" if "detection" in module else "input" if "lraspp" in module else "x"
        smaller = [
            partial(build, image_size=64),
            partial(build, min_size=64),
            partial(build, spatial_size=(64, 64)),
        ]
        smaller_shapes = [shapes[0], shapes[0], shapes[2]]
        for each, shape in zip([*smaller, *[build] * 4], [*smaller_shapes, *shapes], strict=True):
            yield each, {key: torch.randn(_ROWS, *shape)}
