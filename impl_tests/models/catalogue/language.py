"""Language models with attention from the package transformers."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configurations import LANGUAGE, SMALL, build_model, draw_tokens
from impl_tests.models.model import HOOKS, Model

__all__ = ["MODELS"]

#: Why torch.nn.parallel fails on the cache of sliding-window layers, which is iterable.
_ITERABLE_CACHE = "the model's cache cannot be rebuilt from gathered members"
_LLAMA = {**LANGUAGE, **SMALL, "num_key_value_heads": 1, "head_dim": 8}


class CacheInput(nn.Module):
    """A model whose cache is passed as tensors. DataParallel would not split a Cache object."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, memory: list[tuple[Tensor, Tensor]], **inputs: Tensor) -> Any:
        """Run the model with ``memory`` as the cache of earlier tokens."""
        from transformers import DynamicCache

        return self.net(past_key_values=DynamicCache(memory), **inputs)


def _draw_tokens_and_cache(rows: int) -> dict[str, Any]:
    layers = [tuple(torch.randn(2, rows, 1, 3, 8)) for _ in range(SMALL["num_hidden_layers"])]
    return {**draw_tokens(rows), "memory": layers}


def _draw_tokens_with_hidden_states_output(rows: int) -> dict[str, Any]:
    return {**draw_tokens(rows), "output_hidden_states": True}


MODELS = [
    Model(
        "GPT-2",
        "transformers",
        "tied weights; a Cache in the outputs",
        lambda: build_model(
            "GPT2LMHeadModel",
            "GPT2Config",
            **LANGUAGE,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=8,
        ),
        draw_tokens,
    ),
    Model(
        "Llama",
        "transformers",
        "rotary positions, shared keys; returns hidden states",
        lambda: build_model("LlamaForCausalLM", "LlamaConfig", **_LLAMA),
        _draw_tokens_with_hidden_states_output,
        reference=HOOKS,
    ),
    Model(
        "Llama with memory",
        "transformers",
        "a Cache as input, given as pairs of tensors, and as output",
        lambda: CacheInput(build_model("LlamaForCausalLM", "LlamaConfig", **_LLAMA)),
        _draw_tokens_and_cache,
    ),
    Model(
        "Gemma 2",
        "transformers",
        "sliding-window and global attention layers",
        lambda: build_model("Gemma2ForCausalLM", "Gemma2Config", **_LLAMA),
        draw_tokens,
        reference=_ITERABLE_CACHE,
        not_compared=(".past_key_values",),  # impl returns a list with one cache per replica
    ),
    Model(
        "BLOOM",
        "transformers",
        "positions as attention biases",
        lambda: build_model(
            "BloomForCausalLM", "BloomConfig", **LANGUAGE, hidden_size=16, n_layer=2, n_head=2
        ),
        draw_tokens,
    ),
    Model(
        "OPT",
        "transformers",
        "learned positions; returns hidden states",
        lambda: build_model(
            "OPTForCausalLM",
            "OPTConfig",
            **LANGUAGE,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
            word_embed_proj_dim=16,
            max_position_embeddings=8,
        ),
        _draw_tokens_with_hidden_states_output,
        reference=HOOKS,
    ),
    Model(
        "Falcon",
        "transformers",
        "one key head for all queries; attention and MLP in parallel",
        lambda: build_model("FalconForCausalLM", "FalconConfig", **{**LANGUAGE, **SMALL}),
        draw_tokens,
    ),
    Model(
        "Mixtral",
        "transformers",
        "mixture of experts",
        lambda: build_model("MixtralForCausalLM", "MixtralConfig", **_LLAMA, num_local_experts=4),
        draw_tokens,
    ),
    Model(
        "DeepSeek-V3",
        "transformers",
        "latent attention; experts in groups",
        lambda: build_model(
            "DeepseekV3ForCausalLM",
            "DeepseekV3Config",
            **{**_LLAMA, "num_key_value_heads": 2},
            moe_intermediate_size=8,
            n_routed_experts=4,
            kv_lora_rank=8,
            q_lora_rank=8,
            qk_rope_head_dim=8,
            v_head_dim=8,
            qk_nope_head_dim=8,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            n_shared_experts=1,
        ),
        draw_tokens,
    ),
]
