"""Small models from the package transformers, without dropout and other randomness."""

from typing import Any

import torch
from torch import nn

__all__ = ["LANGUAGE", "SMALL", "VOCABULARY_SIZE", "build_model", "draw_tokens"]

VOCABULARY_SIZE = 50
#: Configuration values for the size of most models.
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
#: Configuration values for the tokens of language models.
LANGUAGE: dict[str, Any] = {
    "vocab_size": VOCABULARY_SIZE,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: Substrings of the names of probabilities: of dropout, stochastic depth, noise and masking.
_PROBABILITIES = ("drop", "jitter", "mask_time_prob", "mask_feature_prob")


def draw_tokens(rows: int) -> dict[str, Any]:
    """Draw random tokens, which are also the labels."""
    tokens = torch.randint(3, VOCABULARY_SIZE, (rows, 8))
    return {"input_ids": tokens, "labels": tokens.clone()}


def build_model(name: str, configuration: str, **settings: Any) -> nn.Module:
    """Return a model from the package transformers with random weights.

    All probabilities of the configuration, such as dropout, are set to 0, because replicas draw
    other random numbers than one device.

    Args:
        name: The name of the model's class.
        configuration: The name of the configuration's class.
        settings: Arguments of the configuration.
    """
    import transformers

    config = getattr(transformers, configuration)(**settings)
    _set_probabilities_to_zero(config)
    module: nn.Module = getattr(transformers, name)(config)
    return module


def _set_probabilities_to_zero(config: Any) -> None:
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):
            _set_probabilities_to_zero(value)
        elif isinstance(value, float) and any(part in name for part in _PROBABILITIES):
            setattr(config, name, 0.0)
