"""Small models from the package transformers, without dropout and other randomness."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SMALL", "build_model", "draw_text", "draw_tokens"]

_VOCABULARY_SIZE = 50
#: Configuration values for the size of the models.
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
#: Configuration values of all models. A model ignores those that it does not have.
_DEFAULTS: dict[str, Any] = {
    **SMALL,
    "vocab_size": _VOCABULARY_SIZE,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: A setting whose name contains one of these is a probability of dropout, stochastic depth, noise
#: or masking.
_PROBABILITIES = ("drop", "jitter", "mask_time_prob", "mask_feature_prob")


def draw_tokens(rows: int, length: int = 8) -> Tensor:
    """Draw ``rows`` rows of random tokens."""
    return torch.randint(3, _VOCABULARY_SIZE, (rows, length))


def draw_text(rows: int) -> dict[str, Any]:
    """Draw random tokens, which are also the labels."""
    tokens = draw_tokens(rows)
    return {"input_ids": tokens, "labels": tokens.clone()}


def build_model(class_name: str, settings: Mapping[str, Any]) -> nn.Module:
    """Return a model from the package transformers with random weights.

    All probabilities of the configuration, such as dropout, are set to 0, because replicas draw
    other random numbers than one device.

    Args:
        class_name: The name of the model's class.
        settings: Arguments of the configuration. They extend or replace ``_DEFAULTS``.
    """
    import transformers

    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**{**_DEFAULTS, **settings})
    _set_probabilities_to_zero(config)
    module: nn.Module = model_class(config)
    return module


def _set_probabilities_to_zero(config: Any) -> None:
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):
            _set_probabilities_to_zero(value)
        elif isinstance(value, float) and any(part in name for part in _PROBABILITIES):
            setattr(config, name, 0.0)
