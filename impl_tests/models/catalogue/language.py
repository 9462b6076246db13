"""Language models of transformers that attend to all that was before."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configuring import SMALL, WORDS, made, sentences
from impl_tests.models.model import HOOKS, Model

__all__ = ["MODELS"]

#: What is wrong with a cache that is iterable.
_WINDOWS = "its cache is not built again from joined parts"
_LLAMA = {**WORDS, **SMALL, "num_key_value_heads": 1, "head_dim": 8}


class Remembering(nn.Module):
    """A model that is given a Cache in parts: a Cache itself goes to every replica, whole."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, memory: list[tuple[Tensor, Tensor]], **words: Tensor) -> Any:
        """Go on after what is remembered."""
        from transformers import DynamicCache

        return self.net(past_key_values=DynamicCache(memory), **words)


def _with_memory(rows: int) -> dict[str, Any]:
    layers = [tuple(torch.randn(2, rows, 1, 3, 8)) for _ in range(SMALL["num_hidden_layers"])]
    return {**sentences(rows), "memory": layers}


def _with_states(rows: int) -> dict[str, Any]:
    return {**sentences(rows), "output_hidden_states": True}


MODELS = [
    Model(
        "GPT-2",
        "transformers",
        "tied weights; a Cache among the outputs",
        lambda: made(
            "GPT2LMHeadModel",
            "GPT2Config",
            **WORDS,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=8,
        ),
        sentences,
    ),
    Model(
        "Llama",
        "transformers",
        "rotary positions, shared keys; asked for hidden states",
        lambda: made("LlamaForCausalLM", "LlamaConfig", **_LLAMA),
        _with_states,
        reference=HOOKS,
    ),
    Model(
        "Llama with memory",
        "transformers",
        "a Cache in, as pairs of tensors, and out",
        lambda: Remembering(made("LlamaForCausalLM", "LlamaConfig", **_LLAMA)),
        _with_memory,
    ),
    Model(
        "Gemma 2",
        "transformers",
        "layers that look back a little and layers that look back far",
        lambda: made("Gemma2ForCausalLM", "Gemma2Config", **_LLAMA),
        sentences,
        reference=_WINDOWS,
        apart=(".past_key_values",),  # one for each replica
    ),
    Model(
        "BLOOM",
        "transformers",
        "positions as biases of the attention",
        lambda: made(
            "BloomForCausalLM", "BloomConfig", **WORDS, hidden_size=16, n_layer=2, n_head=2
        ),
        sentences,
    ),
    Model(
        "OPT",
        "transformers",
        "learned positions; asked for hidden states",
        lambda: made(
            "OPTForCausalLM",
            "OPTConfig",
            **WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
            word_embed_proj_dim=16,
            max_position_embeddings=8,
        ),
        _with_states,
        reference=HOOKS,
    ),
    Model(
        "Falcon",
        "transformers",
        "one key head for all queries; attention and MLP in parallel",
        lambda: made("FalconForCausalLM", "FalconConfig", **{**WORDS, **SMALL}),
        sentences,
    ),
    Model(
        "Mixtral",
        "transformers",
        "mixture of experts",
        lambda: made("MixtralForCausalLM", "MixtralConfig", **_LLAMA, num_local_experts=4),
        sentences,
    ),
    Model(
        "DeepSeek-V3",
        "transformers",
        "latent attention; experts in groups",
        lambda: made(
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
        sentences,
    ),
]
