"""bitsandbytes: quantized weights of a language model."""

import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from . import Use, Variant
from .language_models import (
    SEQUENCES,
    add_lora,
    decoder,
    evaluate,
    evaluate_with_one_copy,
    train_adapters,
)

_CONFIGS: Mapping[str, Mapping[str, bool]] = {
    "8 bit": {"load_in_8bit": True},
    "4 bit": {"load_in_4bit": True},
}


def _quantized(config: Mapping[str, bool], device: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        decoder().save_pretrained(folder)
        return transformers.LlamaForCausalLM.from_pretrained(
            folder,
            quantization_config=transformers.BitsAndBytesConfig(**config),
            device_map={"": device},
            dtype="float32",
        )


def _evaluate(config: Mapping[str, bool], variant: Variant) -> list[Any]:
    wrapper = variant.wrap(_quantized(config, variant.device))
    return [
        evaluate_with_one_copy(wrapper, variant.device),
        evaluate(wrapper, variant.device),
        evaluate(getattr(wrapper, "module", wrapper), variant.device),
    ]


def _train_adapters(config: Mapping[str, bool], variant: Variant) -> list[Any]:
    return train_adapters(add_lora(_quantized(config, variant.device)), variant)


def _evaluate_merged(config: Mapping[str, bool], variant: Variant) -> Tensor:
    model = add_lora(_quantized(config, variant.device)).merge_and_unload()
    return evaluate(variant.wrap(model), variant.device)


def _load_on_each_device(config: Mapping[str, bool], variant: Variant) -> Tensor:
    if variant.data_parallel is None:
        return evaluate(_quantized(config, variant.device), variant.device)
    library, devices = variant.library, list(variant.device_ids)
    models = [_quantized(config, device) for device in devices]
    chunks = library.scatter(SEQUENCES.to(devices[0]), devices)
    with torch.no_grad():
        outputs = library.parallel_apply(models, chunks, devices=devices)
    logits: Tensor = library.gather(outputs, devices[0]).logits
    return logits


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
    **{
        f"{name}: evaluation after LoRA is merged": partial(_evaluate_merged, config)
        for name, config in _CONFIGS.items()
    },
    "8 bit, a model on each device, by `parallel_apply`": partial(
        _load_on_each_device, _CONFIGS["8 bit"]
    ),
}
