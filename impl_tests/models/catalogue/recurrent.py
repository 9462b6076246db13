"""Language models with a recurrent state or a memory from the package transformers."""

from impl_tests.models.configurations import LANGUAGE, SMALL, build_model, draw_tokens
from impl_tests.models.model import NO_PARAMETERS, Model

__all__ = ["MODELS"]

#: Why torch.nn.parallel fails on caches that have ``__iter__``.
_ITERABLE_CACHE = "the model's cache raises an error when iterated"
_LLAMA = {**LANGUAGE, **SMALL, "num_key_value_heads": 1, "head_dim": 8}

MODELS = [
    Model(
        "Qwen3-Next",
        "transformers",
        "gated delta rule and attention",
        lambda: build_model(
            "Qwen3NextForCausalLM",
            "Qwen3NextConfig",
            **_LLAMA,
            linear_num_value_heads=2,
            linear_num_key_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=8,
            shared_expert_intermediate_size=8,
            layer_types=["linear_attention", "full_attention"],
        ),
        draw_tokens,
        reference=_ITERABLE_CACHE,
        not_compared=(".past_key_values",),  # impl returns a list with one cache per replica
    ),
    Model(
        "Mamba",
        "transformers",
        "state space",
        lambda: build_model(
            "MambaForCausalLM",
            "MambaConfig",
            **LANGUAGE,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
        ),
        draw_tokens,
    ),
    Model(
        "Mamba 2",
        "transformers",
        "state space, computed in chunks",
        lambda: build_model(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            **LANGUAGE,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
            num_heads=4,
            head_dim=8,
            n_groups=1,
            chunk_size=4,
        ),
        draw_tokens,
    ),
    Model(
        "Jamba",
        "transformers",
        "state space, attention and experts",
        lambda: build_model(
            "JambaForCausalLM",
            "JambaConfig",
            **{**LANGUAGE, **SMALL},
            num_key_value_heads=1,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            mamba_d_state=4,
            mamba_dt_rank=4,
        ),
        draw_tokens,
        reference=_ITERABLE_CACHE,
        not_compared=(".past_key_values",),  # impl returns a list with one cache per replica
    ),
    Model(
        "RecurrentGemma",
        "transformers",
        "gated linear recurrence; layers that keep their state",
        lambda: build_model(
            "RecurrentGemmaForCausalLM",
            "RecurrentGemmaConfig",
            **{**LANGUAGE, **SMALL, "num_hidden_layers": 3},
            num_key_value_heads=1,
            lru_width=16,
            attention_window_size=4,
            head_dim=8,
        ),
        draw_tokens,
    ),
    Model(
        "RWKV",
        "transformers",
        "recurrent, in a loop over the tokens",
        lambda: build_model(
            "RwkvForCausalLM",
            "RwkvConfig",
            **LANGUAGE,
            hidden_size=16,
            num_hidden_layers=2,
            context_length=16,
        ),
        draw_tokens,
    ),
    Model(
        "XLNet",
        "transformers",
        "memory of earlier segments",
        lambda: build_model(
            "XLNetLMHeadModel",
            "XLNetConfig",
            **LANGUAGE,
            d_model=16,
            n_layer=2,
            n_head=2,
            d_inner=32,
        ),
        draw_tokens,
        reference=NO_PARAMETERS,
        impl=NO_PARAMETERS,
    ),
    Model(
        "Reformer",
        "transformers",
        "reversible layers with a custom backward",
        lambda: build_model(
            "ReformerModelWithLMHead",
            "ReformerConfig",
            **LANGUAGE,
            hidden_size=16,
            attention_head_size=8,
            num_attention_heads=2,
            feed_forward_size=32,
            is_decoder=True,
            attn_layers=["local", "local"],
            local_attn_chunk_length=4,
            axial_pos_embds=False,
            max_position_embeddings=32,
        ),
        draw_tokens,
        not_compared=(".past_buckets_states",),
        reference="refuses the model's cache, which is not iterable",
    ),
]
