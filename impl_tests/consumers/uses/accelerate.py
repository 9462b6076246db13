"""accelerate: hooks that replace the forward of a module."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from accelerate import cpu_offload
from accelerate.hooks import AlignDevicesHook, ModelHook, add_hook_to_module

from . import Use, Variant
from .language_models import decoder, evaluate, train


class _Doubled(ModelHook):  # type: ignore[misc] # the package is not installed for mypy
    """A hook that doubles the output of a layer, by a weight of the layer's module."""

    def post_forward(self, module: Any, output: Any) -> Any:
        return output * 2 + 0 * module.weight.sum()


def _hooked(hook: ModelHook, variant: Variant) -> list[Any]:
    model = decoder()
    for layer in model.model.layers:
        add_hook_to_module(layer.mlp.up_proj, hook)
    wrapper = variant.wrap(model)
    return [train(wrapper, variant.device), evaluate(wrapper, variant.device)]


def _offloaded(variant: Variant) -> list[Any]:
    wrapper = variant.wrap(decoder())
    cpu_offload(getattr(wrapper, "module", wrapper), execution_device=torch.device(variant.device))
    return [evaluate(wrapper, variant.device)]


USES: Mapping[str, Use] = {
    "a hook that changes the output of each layer": partial(_hooked, _Doubled()),
    "AlignDevicesHook of a layer": partial(_hooked, AlignDevicesHook(io_same_device=True)),
    "weights that cpu_offload keeps on the CPU": _offloaded,
}
