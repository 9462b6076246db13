"""Language models of transformers that keep something of what was before."""

from impl_tests.models.configuring import SMALL, WORDS, made, sentences
from impl_tests.models.model import NO_PARAMETERS, Model

__all__ = ["MODELS"]

#: What is wrong with caches that are iterable.
_STATES = "its cache fails when it is iterated over"
_LLAMA = {**WORDS, **SMALL, "num_key_value_heads": 1, "head_dim": 8}

MODELS = [
    Model(
        "Qwen3-Next",
        "transformers",
        "gated delta rule beside attention",
        lambda: made(
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
        sentences,
        reference=_STATES,
        apart=(".past_key_values",),  # one for each replica
    ),
    Model(
        "Mamba",
        "transformers",
        "state space",
        lambda: made(
            "MambaForCausalLM",
            "MambaConfig",
            **WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
        ),
        sentences,
    ),
    Model(
        "Mamba 2",
        "transformers",
        "state space, in chunks",
        lambda: made(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            **WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
            num_heads=4,
            head_dim=8,
            n_groups=1,
            chunk_size=4,
        ),
        sentences,
    ),
    Model(
        "Jamba",
        "transformers",
        "state space, attention and experts",
        lambda: made(
            "JambaForCausalLM",
            "JambaConfig",
            **{**WORDS, **SMALL},
            num_key_value_heads=1,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            mamba_d_state=4,
            mamba_dt_rank=4,
        ),
        sentences,
        reference=_STATES,
        apart=(".past_key_values",),  # one for each replica
    ),
    Model(
        "RecurrentGemma",
        "transformers",
        "gated linear recurrence; state kept by the layers",
        lambda: made(
            "RecurrentGemmaForCausalLM",
            "RecurrentGemmaConfig",
            **{**WORDS, **SMALL, "num_hidden_layers": 3},
            num_key_value_heads=1,
            lru_width=16,
            attention_window_size=4,
            head_dim=8,
        ),
        sentences,
    ),
    Model(
        "RWKV",
        "transformers",
        "recurrent, in a loop over the tokens",
        lambda: made(
            "RwkvForCausalLM",
            "RwkvConfig",
            **WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            context_length=16,
        ),
        sentences,
    ),
    Model(
        "XLNet",
        "transformers",
        "memories of what was read before",
        lambda: made(
            "XLNetLMHeadModel",
            "XLNetConfig",
            **WORDS,
            d_model=16,
            n_layer=2,
            n_head=2,
            d_inner=32,
        ),
        sentences,
        reference=NO_PARAMETERS,
        ours=NO_PARAMETERS,
    ),
    Model(
        "Reformer",
        "transformers",
        "reversible layers, with a backward of their own",
        lambda: made(
            "ReformerModelWithLMHead",
            "ReformerConfig",
            **WORDS,
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
        sentences,
        apart=(".past_buckets_states",),
        reference="refuses its cache, which is not iterable",
    ),
]
