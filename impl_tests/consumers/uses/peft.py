"""peft: adapters of a language model."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import peft

from . import Use, Variant
from .language_models import add_lora, decoder, evaluate, train_adapters


def _add_ia3(model: Any) -> Any:
    config = peft.IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"],
        feedforward_modules=["down_proj"],
        init_ia3_weights=False,
    )
    return peft.get_peft_model(model, config)


def _train_and_merge(add_adapters: Callable[[Any], Any], variant: Variant) -> list[Any]:
    model = add_adapters(decoder())
    results = train_adapters(model, variant)
    merged = variant.wrap(model.merge_and_unload())
    return [*results, evaluate(merged, variant.device)]


_ADAPTERS: Mapping[str, Callable[[Any], Any]] = {
    "LoRA": add_lora,
    "DoRA": partial(add_lora, use_dora=True),
    "IA3": _add_ia3,
}
USES: Mapping[str, Use] = {
    f"{name}: training, frozen copies, evaluation in hold, merge": partial(_train_and_merge, add)
    for name, add in _ADAPTERS.items()
}
