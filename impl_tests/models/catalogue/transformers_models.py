"""Models from the package transformers. ``transformers.toml`` has their classes and settings."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.configurations import SMALL, build_model, draw_text, draw_tokens
from impl_tests.models.model import (
    NO_PARAMETERS_REASON,
    SHARED_HOOKS_REASON,
    Model,
    draw_images,
    mean_loss,
)

__all__ = ["MODELS"]

_TABLE = Path(__file__).with_name("transformers.toml")
#: The reasons in the table that several models share.
_REASONS = {"shared hooks": SHARED_HOOKS_REASON, "no parameters": NO_PARAMETERS_REASON}


class ModelWithCacheTensors(nn.Module):
    """A model whose cache is passed as tensors. DataParallel would not split a Cache object."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, cache_tensors: list[tuple[Tensor, Tensor]], **inputs: Tensor) -> Any:
        """Run the model with ``cache_tensors`` (keys and values of each layer) as its cache."""
        from transformers import DynamicCache

        return self.net(past_key_values=DynamicCache(cache_tensors), **inputs)


def _build_llama_with_memory() -> nn.Module:
    settings = {"num_key_value_heads": 1, "head_dim": 8}
    return ModelWithCacheTensors(build_model("LlamaForCausalLM", settings))


def _build_big_bird() -> nn.Module:
    settings = {"block_size": 1, "num_random_blocks": 1, "max_position_embeddings": 32}
    net = build_model("BigBirdForMaskedLM", settings)
    for module in net.modules():
        if type(module).__name__ == "BigBirdBlockSparseAttention":
            _keep_in_evaluation(module)
    return net


def _keep_in_evaluation(module: nn.Module) -> None:
    """Keep a BigBird attention in evaluation mode, where its blocks are fixed.

    In training mode it draws random blocks with numpy's global generator. All replicas seed this
    generator at the same time, so the blocks would differ from run to run.
    """
    module.eval()
    module.train = lambda mode=True: module  # type: ignore[method-assign]


def _build_detr() -> nn.Module:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    settings = {
        "backbone_config": backbone,
        "num_hidden_layers": 1,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "num_queries": 3,
    }
    return build_model("DetrForObjectDetection", settings)


#: Name of a model that needs code -> a function that builds it.
_BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "Llama with memory": _build_llama_with_memory,
    "BigBird": _build_big_bird,
    "DETR": _build_detr,
}


def _draw_text_and_cache(rows: int) -> dict[str, Any]:
    layers = [tuple(torch.randn(2, rows, 1, 3, 8)) for _ in range(SMALL["num_hidden_layers"])]
    return {**draw_text(rows), "cache_tensors": layers}


def _draw_text_with_hidden_states_output(rows: int) -> dict[str, Any]:
    return {**draw_text(rows), "output_hidden_states": True}


def _draw_labelled_tokens(rows: int) -> dict[str, Any]:
    return {"input_ids": draw_tokens(rows), "labels": draw_tokens(rows)}


def _draw_labelled_tokens_requesting_all_outputs(rows: int) -> dict[str, Any]:
    return {**_draw_labelled_tokens(rows), "output_hidden_states": True, "output_attentions": True}


def _draw_pages(rows: int) -> dict[str, Any]:
    boxes = torch.arange(4).expand(rows, 8, 4).contiguous()
    return {"input_ids": draw_tokens(rows), "bbox": boxes, "labels": torch.randint(3, (rows, 8))}


def _draw_series(rows: int) -> dict[str, Any]:
    return {
        "past_values": torch.randn(rows, 6),
        "past_time_features": torch.randn(rows, 6, 1),
        "past_observed_mask": torch.ones(rows, 6),
        "future_values": torch.randn(rows, 3),
        "future_time_features": torch.randn(rows, 3, 1),
    }


def _draw_labelled_images(rows: int) -> dict[str, Any]:
    return {"pixel_values": draw_images(rows), "labels": torch.arange(rows) % 3}


def _draw_captioned_images(rows: int) -> dict[str, Any]:
    image = torch.ones(rows, 4, dtype=torch.long)  # Each image takes four tokens.
    tokens = torch.cat([image, draw_tokens(rows, 6)], 1)
    return {"input_ids": tokens, "pixel_values": draw_images(rows), "labels": tokens.clone()}


def _draw_audio(rows: int) -> dict[str, Any]:
    return {"input_values": torch.randn(rows, 256), "labels": draw_tokens(rows, 4)}


#: Name of a model -> a function that draws its inputs. The other models take text.
_INPUTS: dict[str, Callable[[int], Mapping[str, Any]]] = {
    "Llama": _draw_text_with_hidden_states_output,
    "Llama with memory": _draw_text_and_cache,
    "OPT": _draw_text_with_hidden_states_output,
    "BERT": _draw_labelled_tokens_requesting_all_outputs,
    "DeBERTa-v2": _draw_labelled_tokens,
    "Longformer": _draw_labelled_tokens,
    "BigBird": _draw_labelled_tokens,
    "Perceiver": lambda rows: {"inputs": draw_tokens(rows), "labels": draw_tokens(rows)},
    "LayoutLM": _draw_pages,
    "TimeSeriesTransformer": _draw_series,
    "PatchTST": lambda rows: {
        "past_values": torch.randn(rows, 16, 2),
        "future_values": torch.randn(rows, 4, 2),
    },
    "ViT": _draw_labelled_images,
    "Swin": _draw_labelled_images,
    "ConvNeXt V2": _draw_labelled_images,
    "SegFormer": lambda rows: {
        "pixel_values": draw_images(rows),
        "labels": torch.randint(0, 3, (rows, 16, 16)),
    },
    "DETR": lambda rows: {"pixel_values": draw_images(rows, 32)},
    "YOLOS": lambda rows: {"pixel_values": draw_images(rows)},
    "VideoMAE": lambda rows: {
        "pixel_values": torch.randn(rows, 4, 3, 16, 16),
        "labels": torch.arange(rows) % 3,
    },
    "CLIP": lambda rows: {"input_ids": draw_tokens(rows), "pixel_values": draw_images(rows)},
    "LLaVA": _draw_captioned_images,
    "SAM": lambda rows: {
        "pixel_values": draw_images(rows, 32),
        "input_points": torch.rand(rows, 1, 2, 2) * 16,
    },
    "Whisper": lambda rows: {
        "input_features": torch.randn(rows, 8, 16),
        "labels": draw_tokens(rows, 6),
    },
    "Wav2Vec2": _draw_audio,
    "Hubert": _draw_audio,
    "AST": lambda rows: {
        "input_values": torch.randn(rows, 16, 8),
        "labels": torch.arange(rows) % 3,
    },
    "EnCodec": lambda rows: {"input_values": torch.randn(rows, 1, 64)},
}


def _detection_loss(output: Any) -> Tensor:
    """Return the sum of the mean squares of a detector's outputs."""
    loss: Tensor = output["logits"].square().mean() + output["pred_boxes"].square().mean()
    return loss


#: Name of a model -> a function that computes its loss. The other models return a loss.
_LOSSES: dict[str, Callable[[Any], Tensor]] = {
    "DETR": _detection_loss,
    "YOLOS": _detection_loss,
    "CLIP": lambda output: (output["text_embeds"] - output["image_embeds"]).square().mean(),
    "SAM": lambda output: (
        output["pred_masks"].square().mean() + output["iou_scores"].square().mean()
    ),
    "EnCodec": lambda output: output["audio_values"].square().mean(),
}


def _define(name: str, row: Mapping[str, Any]) -> Model:
    reason = row.get("reference", "")
    return Model(
        name,
        "transformers",
        row["covers"],
        _BUILDERS.get(name) or partial(build_model, row["class"], row.get("settings", {})),
        _INPUTS.get(name, draw_text),
        _LOSSES.get(name, mean_loss),
        tuple(row.get("not_compared", ())),
        _REASONS.get(reason, reason),
    )


MODELS = [
    _define(name, row) for name, row in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items()
]
