"""bitsandbytes: quantized weights of a language model."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bitsandbytes.nn import Linear4bit, Linear8bitLt
from torch import nn

from . import Use, Variant
from .language_models import add_lora, decoder, evaluate, evaluate_with_one_copy, train_adapters


def quantize(bits: int, model: nn.Module) -> nn.Module:
    """Return ``model`` with quantized projections."""
    for name, layer in [*model.named_modules()]:
        if name.endswith("_proj"):
            size = layer.in_features, layer.out_features
            if bits == 8:
                quantized: Any = Linear8bitLt(*size, bias=False, has_fp16_weights=False)
            else:
                quantized = Linear4bit(*size, bias=False, quant_type="nf4")
            quantized.load_state_dict(layer.state_dict())
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, quantized)
    return model


def _evaluate(bits: int, variant: Variant) -> list[Any]:
    wrapper = variant.wrap(quantize(bits, decoder()))
    return [evaluate(wrapper, variant.device), evaluate_with_one_copy(wrapper, variant.device)]


def _train_adapters(bits: int, variant: Variant) -> list[Any]:
    return train_adapters(add_lora(quantize(bits, decoder())), variant)


USES: Mapping[str, Use] = {
    **{
        f"{bits} bit: evaluation, hold": partial(_evaluate, bits) for bits in (8, 4)
    },
    **{
        f"{bits} bit with LoRA: training, frozen copies, hold": partial(
            _train_adapters, bits
        )
        for bits in (8, 4)
    },
}
