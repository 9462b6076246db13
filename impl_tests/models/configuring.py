"""Configurations of transformers without chance."""

from typing import Any

import torch
from torch import nn

__all__ = ["SMALL", "TOKENS", "WORDS", "made", "sentences"]

TOKENS = 50
#: How large most models are.
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
#: What language models know of their tokens.
WORDS: dict[str, Any] = {
    "vocab_size": TOKENS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: Beginnings and parts of the names of probabilities: dropout, stochastic depth, noise.
_CHANCES = ("drop", "jitter", "mask_time_prob", "mask_feature_prob")


def sentences(rows: int) -> dict[str, Any]:
    """Draw tokens, which are their own labels."""
    tokens = torch.randint(3, TOKENS, (rows, 8))
    return {"input_ids": tokens, "labels": tokens.clone()}


def made(name: str, configuration: str, **settings: Any) -> nn.Module:
    """Make a model of transformers with random weights.

    Args:
        name: The model's class.
        configuration: Its configuration's class.
        settings: What is not as in the defaults. Every probability of dropping or masking
            something is 0 besides: replicas draw other numbers than one device does.
    """
    import transformers

    config = getattr(transformers, configuration)(**settings)
    _quieten(config)
    module: nn.Module = getattr(transformers, name)(config)
    return module


def _quieten(config: Any) -> None:
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):
            _quieten(value)
        elif isinstance(value, float) and any(part in name for part in _CHANCES):
            setattr(config, name, 0.0)
