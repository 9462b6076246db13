"""Language models with an encoder and a decoder from the package transformers."""

from impl_tests.models.configurations import LANGUAGE, build_model, draw_tokens
from impl_tests.models.model import Model

__all__ = ["MODELS"]

_BART = {
    **LANGUAGE,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
_T5 = {
    **LANGUAGE,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}


MODELS = [
    Model(
        "T5",
        "transformers",
        "encoder and decoder; one embedding for both; a pair of Caches",
        lambda: build_model("T5ForConditionalGeneration", "T5Config", **_T5),
        draw_tokens,
    ),
    Model(
        "BART",
        "transformers",
        "encoder and decoder; biases that are buffers",
        lambda: build_model("BartForConditionalGeneration", "BartConfig", **_BART),
        draw_tokens,
    ),
    Model(
        "LED",
        "transformers",
        "encoder with windowed attention; decoder",
        lambda: build_model(
            "LEDForConditionalGeneration",
            "LEDConfig",
            **_BART,
            attention_window=4,
            max_encoder_position_embeddings=16,
            max_decoder_position_embeddings=16,
        ),
        draw_tokens,
    ),
    Model(
        "Switch",
        "transformers",
        "encoder and decoder; one expert per token",
        lambda: build_model(
            "SwitchTransformersForConditionalGeneration",
            "SwitchTransformersConfig",
            **_T5,
            num_experts=4,
            router_aux_loss_coef=0.0,
            router_z_loss_coef=0.0,
        ),
        draw_tokens,
    ),
]
