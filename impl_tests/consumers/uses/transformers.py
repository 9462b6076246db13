"""transformers: ``generate`` of several models, and caches as inputs."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import transformers
from transformers.integrations.executorch import register_dynamic_cache_export_support

from . import Use, Variant
from .language_models import SEQUENCES, decoder, generate
from .trainers import SENTENCES, train_with, word_tokenizer

_SIZES = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def _encoder_decoder() -> Any:
    transformers.set_seed(0)
    config = transformers.BartConfig(
        **_SIZES, max_position_embeddings=64, forced_eos_token_id=None, eos_token_id=2
    )
    return transformers.BartForConditionalGeneration(config).eval()


def _vision_decoder() -> Any:
    transformers.set_seed(0)
    text = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "pad_token_id": 0,
        "encoder_hidden_size": 32,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    config = transformers.BlipConfig(text_config=text, vision_config=vision, projection_dim=32)
    return transformers.BlipForConditionalGeneration(config).eval()


def _trainer(model: Any, arguments: Any) -> Any:
    tokenizer = word_tokenizer()
    rows = [tokenizer(each, padding="max_length", max_length=8) for each in SENTENCES]
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
    return transformers.Trainer(model, arguments, train_dataset=data)


def _texts(device: str) -> dict[str, Any]:
    return {"input_ids": SEQUENCES.to(device)}


def _padded_texts(device: str) -> dict[str, Any]:
    mask = torch.ones_like(SEQUENCES)
    mask[0, :3] = 0
    return {"input_ids": SEQUENCES.to(device), "attention_mask": mask.to(device)}


def _images(device: str) -> dict[str, Any]:
    return {"pixel_values": torch.randn(4, 3, 32, 32).to(device)}


def _generate(
    build: Callable[[], Any], inputs: Callable[[str], dict[str, Any]], variant: Variant
) -> list[Any]:
    wrapper = variant.wrap(build())
    batch = inputs(variant.device)
    results = [generate(wrapper, **batch)]
    with torch.no_grad(), getattr(wrapper, "hold", nullcontext)():
        return [*results, generate(wrapper, **batch), generate(wrapper, **batch)]


def _generate_whole_batches(variant: Variant) -> list[Any]:
    """Generate texts of different lengths: a batch ends when all its rows have ended."""
    model = decoder()
    model.generation_config.eos_token_id = [*range(0, 64, 4)]
    tokens = SEQUENCES.to(variant.device)
    batches = [
        {"input_ids": rows, "max_new_tokens": 8, "do_sample": False}
        for rows in (tokens[:1], tokens[1:2], tokens[2:])
    ]
    wrapper = variant.wrap(model)
    with torch.no_grad():
        if wrapper is model:
            return [model.generate(**batch) for batch in batches]
        return [*wrapper.map(batches, method="generate")]


def _continue_with_a_cache(variant: Variant) -> list[Any]:
    """Pass the cache of a forward to the next one."""
    model = decoder()
    wrapper = variant.wrap(model)
    tokens = SEQUENCES.to(variant.device)
    with torch.no_grad():
        first = wrapper(input_ids=tokens[:, :5], use_cache=True)
        second = wrapper(
            input_ids=tokens[:, 5:], past_key_values=first.past_key_values, use_cache=True
        )
    return [first.logits, second.logits]


def _continue_with_a_registered_cache(variant: Variant) -> list[Any]:
    register_dynamic_cache_export_support()
    return _continue_with_a_cache(variant)


USES: Mapping[str, Use] = {
    "`Trainer` on two devices": partial(train_with, _trainer, transformers.TrainingArguments),
    "Llama, `generate`, also in hold": partial(_generate, decoder, _padded_texts),
    "BART, encoder and decoder, `generate`, also in hold": partial(
        _generate, _encoder_decoder, _texts
    ),
    "BLIP, captions of images by `generate`, also in hold": partial(
        _generate, _vision_decoder, _images
    ),
    "Llama, `generate` of whole batches by map": _generate_whole_batches,
    "Llama, the cache of a forward as input of the next": _continue_with_a_cache,
    "the same, after the class of the cache is registered": _continue_with_a_registered_cache,
}
