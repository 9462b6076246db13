"""A small language model with random weights, and the computations that the uses share."""

from contextlib import nullcontext
from typing import Any

import peft
import torch
import transformers
from torch import Tensor

from . import Variant

#: The number of tokens that the models know.
_TOKENS = 64
#: Four sequences of tokens.
SEQUENCES = torch.arange(3, 35).reshape(4, 8)


def decoder(**options: Any) -> Any:
    """Return a Llama of two layers."""
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=_TOKENS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        **options,
    )
    return transformers.LlamaForCausalLM(config).eval()


def add_lora(model: Any, **options: Any) -> Any:
    """Return ``model`` with adapters of rank 4."""
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options
    )
    return peft.get_peft_model(model, config)


def evaluate(wrapper: Any, device: str) -> Tensor:
    """Return the logits of the sequences."""
    with torch.no_grad():
        logits: Tensor = wrapper(input_ids=SEQUENCES.to(device), use_cache=False).logits
    return logits


def train(wrapper: Any, device: str) -> list[Any]:
    """Train for three steps; return the losses and the trained weights."""
    tokens = SEQUENCES.to(device)
    weights = [weight for weight in wrapper.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    losses = []
    for _ in range(3):
        loss = wrapper(input_ids=tokens, labels=tokens, use_cache=False).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, [weight.detach().clone() for weight in weights]]


def generate(wrapper: Any, **inputs: Any) -> Tensor:
    """Return the tokens of greedy search, by ``call`` of a wrapper, or by the module alone."""
    options = {"max_new_tokens": 5, "do_sample": False}
    with torch.no_grad():
        tokens: Tensor = (
            wrapper.generate(**inputs, **options)
            if isinstance(wrapper, transformers.PreTrainedModel)
            else wrapper.call("generate", **inputs, **options)
        )
    return tokens


def evaluate_with_one_copy(wrapper: Any, device: str) -> list[Tensor]:
    """Return the logits of two batches, computed by the same replicas if there are some."""
    with torch.no_grad(), getattr(wrapper, "hold", nullcontext)():
        return [evaluate(wrapper, device), evaluate(wrapper, device)]


def train_adapters(model: Any, variant: Variant) -> list[Any]:
    """Train the adapters of ``model``, with and without frozen copies, and evaluate."""
    wrapper, device = variant.wrap(model), variant.device
    results = [train(wrapper, device)]
    wrapper.cache_frozen_parameters = True
    return [*results, train(wrapper, device), evaluate_with_one_copy(wrapper, device)]
