"""Models of transformers that read first and then write."""

from impl_tests.models.configuring import WORDS, made, sentences
from impl_tests.models.model import Model

__all__ = ["MODELS"]

_BART = {
    **WORDS,
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
    **WORDS,
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
        "reads and writes; one embedding for both; a pair of Caches",
        lambda: made("T5ForConditionalGeneration", "T5Config", **_T5),
        sentences,
    ),
    Model(
        "BART",
        "transformers",
        "reads and writes; biases that are buffers",
        lambda: made("BartForConditionalGeneration", "BartConfig", **_BART),
        sentences,
    ),
    Model(
        "LED",
        "transformers",
        "encoder with windows of attention; decoder",
        lambda: made(
            "LEDForConditionalGeneration",
            "LEDConfig",
            **_BART,
            attention_window=4,
            max_encoder_position_embeddings=16,
            max_decoder_position_embeddings=16,
        ),
        sentences,
    ),
    Model(
        "Switch",
        "transformers",
        "reads and writes; one expert a token",
        lambda: made(
            "SwitchTransformersForConditionalGeneration",
            "SwitchTransformersConfig",
            **_T5,
            num_experts=4,
            router_aux_loss_coef=0.0,
            router_z_loss_coef=0.0,
        ),
        sentences,
    ),
]
