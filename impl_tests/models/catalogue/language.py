"""Language models from the package transformers."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configurations import SMALL, build_model, define, draw_text
from impl_tests.models.model import NO_PARAMETERS_REASON, SHARED_HOOKS_REASON, Model

__all__ = ["MODELS"]

_LLAMA = {"num_key_value_heads": 1, "head_dim": 8}
#: Fields of each `Model` whose caches cannot be gathered. impl returns a list of the caches.
_UNGATHERED_CACHE: dict[str, Any] = {
    "reference": "the model's cache raises an error when iterated",
    "not_compared": (".past_key_values",),
}


class ModelWithCacheTensors(nn.Module):
    """A model whose cache is passed as tensors. DataParallel would not split a Cache object."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, cache_tensors: list[tuple[Tensor, Tensor]], **inputs: Tensor) -> Any:
        """Run the model with ``cache_tensors`` (keys and values of each layer) as its cache."""
        from transformers import DynamicCache

        return self.net(past_key_values=DynamicCache(cache_tensors), **inputs)


def _draw_text_and_cache(rows: int) -> dict[str, Any]:
    layers = [tuple(torch.randn(2, rows, 1, 3, 8)) for _ in range(SMALL["num_hidden_layers"])]
    return {**draw_text(rows), "cache_tensors": layers}


def _draw_text_with_hidden_states_output(rows: int) -> dict[str, Any]:
    return {**draw_text(rows), "output_hidden_states": True}


_ATTENTION = [
    define("GPT-2", "tied weights; a Cache in the outputs", "GPT2LMHeadModel", {"n_positions": 8}),
    define(
        "Llama",
        "rotary positions, shared keys; returns hidden states",
        "LlamaForCausalLM",
        _LLAMA,
        _draw_text_with_hidden_states_output,
        reference=SHARED_HOOKS_REASON,
    ),
    Model(
        "Llama with memory",
        "transformers",
        "a Cache as input, given as pairs of tensors, and as output",
        lambda: ModelWithCacheTensors(build_model("LlamaForCausalLM", _LLAMA)),
        _draw_text_and_cache,
    ),
    define(
        "Gemma 2",
        "sliding-window and global attention layers",
        "Gemma2ForCausalLM",
        _LLAMA,
        not_compared=(".past_key_values",),  # impl returns a list with one cache per replica
        reference="the model's cache cannot be rebuilt from gathered members",
    ),
    define("BLOOM", "positions as attention biases", "BloomForCausalLM", {}),
    define(
        "OPT",
        "learned positions; returns hidden states",
        "OPTForCausalLM",
        {"ffn_dim": 32, "max_position_embeddings": 8},
        _draw_text_with_hidden_states_output,
        reference=SHARED_HOOKS_REASON,
    ),
    define(
        "Falcon",
        "one key head for all queries; attention and MLP in parallel",
        "FalconForCausalLM",
        {},
    ),
    define(
        "Mixtral", "mixture of experts", "MixtralForCausalLM", {**_LLAMA, "num_local_experts": 4}
    ),
    define(
        "DeepSeek-V3",
        "latent attention; experts in groups",
        "DeepseekV3ForCausalLM",
        {
            "moe_intermediate_size": 8,
            "n_routed_experts": 4,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "qk_nope_head_dim": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
        },
    ),
]
_RECURRENT = [
    define(
        "Qwen3-Next",
        "gated delta rule and attention",
        "Qwen3NextForCausalLM",
        {
            **_LLAMA,
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "shared_expert_intermediate_size": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
        **_UNGATHERED_CACHE,
    ),
    define("Mamba", "state space", "MambaForCausalLM", {"state_size": 4}),
    define(
        "Mamba 2",
        "state space, computed in chunks",
        "Mamba2ForCausalLM",
        {"state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
    ),
    define(
        "Jamba",
        "state space, attention and experts",
        "JambaForCausalLM",
        {
            "num_key_value_heads": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
        **_UNGATHERED_CACHE,
    ),
    define(
        "RecurrentGemma",
        "gated linear recurrence; layers that keep their state",
        "RecurrentGemmaForCausalLM",
        {"num_hidden_layers": 3, "num_key_value_heads": 1, "attention_window_size": 4},
    ),
    define(
        "RWKV",
        "recurrent, in a loop over the tokens",
        "RwkvForCausalLM",
        {"intermediate_size": 64},
    ),
    define(
        "XLNet",
        "memory of earlier segments",
        "XLNetLMHeadModel",
        {"d_model": 16, "n_head": 2, "d_inner": 32},
        not_compared=(".mems",),  # The batch of these memories is dimension 1.
        reference=NO_PARAMETERS_REASON,
    ),
    define(
        "Reformer",
        "reversible layers with a custom backward",
        "ReformerModelWithLMHead",
        {
            "attention_head_size": 8,
            "feed_forward_size": 32,
            "is_decoder": True,
            "attn_layers": ["local", "local"],
            "local_attn_chunk_length": 4,
            "axial_pos_embds": False,
            "max_position_embeddings": 32,
        },
        not_compared=(".past_buckets_states",),
        reference="refuses the model's cache, which is not iterable",
    ),
]
_BART = {
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": 1,
}
_T5 = {"d_kv": 8, "d_ff": 32, "num_layers": 2, "decoder_start_token_id": 0}
_ENCODER_DECODER = [
    define(
        "T5",
        "encoder and decoder; one embedding for both; a pair of Caches",
        "T5ForConditionalGeneration",
        _T5,
    ),
    define(
        "BART",
        "encoder and decoder; biases that are buffers",
        "BartForConditionalGeneration",
        _BART,
    ),
    define(
        "LED",
        "encoder with windowed attention; decoder",
        "LEDForConditionalGeneration",
        {
            **_BART,
            "attention_window": 4,
            "max_encoder_position_embeddings": 16,
            "max_decoder_position_embeddings": 16,
        },
    ),
    define(
        "Switch",
        "encoder and decoder; one expert per token",
        "SwitchTransformersForConditionalGeneration",
        {**_T5, "num_experts": 4},
    ),
]
MODELS = [*_ATTENTION, *_RECURRENT, *_ENCODER_DECODER]
