"""torchao: quantized weights of a language model."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup

from . import Use, Variant
from .language_models import add_lora, decoder, evaluate, evaluate_with_one_copy, train_adapters

_CONFIGS: Mapping[str, Any] = {
    "int8": Int8WeightOnlyConfig(),
    "int4": IntxWeightOnlyConfig(
        weight_dtype=torch.int4,  # type: ignore[attr-defined] # the stubs of torch lack it
        granularity=PerGroup(32),
    ),
}


def _evaluate(config: Any, variant: Variant) -> list[Any]:
    model = decoder()
    quantize_(model, config)
    wrapper = variant.wrap(model)
    return [evaluate(wrapper, variant.device), evaluate_with_one_copy(wrapper, variant.device)]


def _train_adapters(config: Any, variant: Variant) -> list[Any]:
    model = decoder()
    quantize_(model, config)
    return train_adapters(add_lora(model), variant)


USES: Mapping[str, Use] = {
    **{
        f"{name}: evaluation, also in hold": partial(_evaluate, config)
        for name, config in _CONFIGS.items()
    },
    **{
        f"{name} with LoRA: training, frozen copies, evaluation in hold": partial(
            _train_adapters, config
        )
        for name, config in _CONFIGS.items()
    },
}
