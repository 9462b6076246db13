"""Small models of all types of transformers, from their default configurations."""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from .transformers_inputs import MAIN_WIDTH, find_inputs, first_field, parts_of

_VALUES = json.loads(Path(__file__).with_name("configurations.json").read_text(encoding="utf-8"))
#: Values of fields without a default value.
_NEEDED: Mapping[str, Any] = _VALUES.pop("needed")
#: For types whose default configuration, or a smaller one, builds no model: other values.
_CHANGED: Mapping[str, Mapping[str, Any]] = _VALUES
#: The models know 256 tokens. The special tokens among them begin with 64.
_VOCABULARY, _TEXT = 256, 64
#: Names of fields of a configuration.
_HEADS = ("num_attention_heads", "encoder_attention_heads", "n_head", "num_heads", "n_heads")
_KINDS = ("layer_types", "layers_block_type")
_IS_RANDOM = re.compile("drop|jitter|mask_time_prob|mask_feature_prob")
_IS_DEPTH = re.compile("layers?$|^depths?$|_depths?$|num_blocks|num_block$|blocks_per_stage")
_IS_WIDTH = re.compile(
    "hidden|dim|embd|width|inter|ffn|channels|^d_|rank|inner|filters|projection|scalar|_embed$"
    "|(input|feature|embedding|out|output|state|lru|text|vision|pooler|proj|projector|adapter"
    "|bottleneck|conv|head|latent|model|reduction|in)_size"
)
_IS_NO_WIDTH = re.compile(
    "image|video|^num|in_channels|audio_channels|^channels|input_channels|input_dim|layer|n_head|patch|window|kernel"
    "|stride|ratio|factor|group|max_|act|mel|token|index|temporal|length|position|rate|levels"
)


def names(mapping: str) -> list[str]:
    """Return the types of models in a mapping of transformers."""
    from transformers.models.auto import modeling_auto

    return [*getattr(modeling_auto, f"{mapping}_NAMES")]


class Scale(NamedTuple):
    """How much smaller a model is than its default configuration."""

    #: The divisor of all widths, and whether heads are fewer, or else narrower.
    width: int
    fewer_heads: bool
    layers: int
    image: int = 4


#: The scales that are tried, one after the other.
SCALES = (
    Scale(16, False, 2),
    Scale(8, True, 4),
    Scale(4, False, 2, 1),
    Scale(2, False, 2),
    Scale(1, False, 2),
    Scale(1, False, 99, 1),
)
MOST_PARAMETERS = 140_000_000


def build(kind: str, scale: Scale, mapping: str) -> tuple[nn.Module, Any]:
    """Return a model of the type ``kind`` with random weights, and its configuration."""
    import transformers

    config = transformers.CONFIG_MAPPING[kind]()
    model_class = getattr(transformers, mapping)[type(config)]
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    kind_of_config = model_class.config_class
    config = next((part for part in parts_of(config) if type(part) is kind_of_config), config)
    sizes: dict[Any, int] = {}
    for part in parts_of(config):
        _note_sizes(part, scale, sizes)
    config = _shrink(config, scale, sizes)
    if scale.width < 8:
        with torch.device("meta"):
            count = sum(weight.numel() for weight in model_class(config).parameters())
        if count > MOST_PARAMETERS:
            raise ValueError(f"{count} parameters")
    torch.manual_seed(0)
    return model_class(config), config


def _note_sizes(config: Any, scale: Scale, sizes: dict[Any, int]) -> None:
    """Note new values of the main width, a multiple of the heads, and of the size of images."""
    fields = vars(config)
    width = next((fields[name] for name in MAIN_WIDTH if isinstance(fields.get(name), int)), 0)
    heads = next((fields[name] for name in _HEADS if isinstance(fields.get(name), int)), 0)
    if isinstance(fields.get("num_heads"), list | tuple) and fields["num_heads"]:
        width, heads = fields.get("embed_dim", 0), fields["num_heads"][0]
    if heads and width % heads == 0:
        head = width // heads
        if scale.fewer_heads:
            sizes.setdefault(width, max(1, heads // scale.width) * head)
        elif scale.width > 1:
            sizes.setdefault(width, heads * max(4, head // scale.width // 4 * 4))
    image, patch = fields.get("image_size"), first_field(config, "patch_size", default=1)
    for each in image if isinstance(image, list | tuple) else [image]:
        if isinstance(each, int) and isinstance(patch, int):
            sizes["image", each] = patch * max(2, each // patch // scale.image)


def _shrink(config: Any, scale: Scale, sizes: dict[Any, int]) -> Any:
    """Return a configuration with fewer layers, small widths, and no randomness."""
    fields, default = vars(config), vars(type(config)())
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if name.startswith("_"):
            continue
        new = _NEEDED.get(name) if value is None else _shrink_field(name, value, scale, sizes)
        if hasattr(value, "to_dict") or new != value or value != default.get(name, value):
            changed[name] = new
    stages = fields.get("_out_features") or ()
    if [*stages] != [*(default.get("_out_features") or ())]:
        depth = changed.get("num_hidden_layers", 99)
        some = [f"stage{number + 1}" for number in range(depth)][-len(stages) :]
        changed["out_features"] = some if depth < 99 else stages
    kinds = next((name for name in _KINDS if fields.get(name)), None)
    if kinds and "num_hidden_layers" in changed:
        different = [*dict.fromkeys(fields[kinds])]
        different *= 1 + ("hybrid" in different)  # Hybrid layers share their weights.
        changed[kinds] = different if len(different) > 1 else different * scale.layers
        changed["num_hidden_layers"] = len(changed[kinds])
    depth = default.get("num_hidden_layers", 0)
    for name, value in fields.items():
        if isinstance(value, list | tuple) and len(value) == depth > 8 and name != kinds:
            changed[name] = changed.get(name, value)[: changed.get("num_hidden_layers", depth)]
    return type(config)(**{**changed, **copy.deepcopy(_CHANGED.get(config.model_type, {}))})


def _shrink_field(name: str, value: Any, scale: Scale, sizes: dict[Any, int]) -> Any:
    if getattr(value, "model_type", "") == "timm_backbone":
        from transformers import ResNetConfig

        stages = [f"stage{number}" for number in range(1, 5)][-len(value._out_indices or "1234") :]
        small = {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "out_features": stages}
        return ResNetConfig(embedding_size=8, **small)
    if hasattr(value, "to_dict"):
        return _shrink(value, scale, sizes)
    if isinstance(value, dict) and "rope" in name and not scale.fewer_heads:
        return {
            key: [max(1, each // scale.width) for each in member] if "section" in key else member
            for key, member in value.items()
        }
    if isinstance(value, bool | str | None):
        return value
    if _IS_RANDOM.search(name):
        return value if isinstance(value, list | tuple) else type(value)(0)
    if isinstance(value, list | tuple) and {type(each) for each in value} == {int}:
        if re.search("indexes|indices|layer_ids|hook_ids|(?<!num)_blocks$", name):
            numbers = [min(each, number % scale.layers) for number, each in enumerate(value)]
        elif _IS_DEPTH.search(name):
            most = 1 if len(value) > 2 and scale.layers < 9 else scale.layers
            numbers = [min(each, most) for each in value]
        else:
            numbers = [_shrink_number(name, each, scale, sizes) for each in value]
        return type(value)(numbers)
    return _shrink_number(name, value, scale, sizes) if isinstance(value, int) else value


def _shrink_number(name: str, value: int, scale: Scale, sizes: dict[Any, int]) -> int:
    if re.search("token_(id|index)s?$|(?<!per)_token$", name):
        return value if value < _TEXT else sizes.setdefault(name, _TEXT + len(sizes))
    if "vocab" in name:
        return min(value, _VOCABULARY)
    if name in ("image_size", "patch_size") or name.endswith("_groups"):
        return sizes.get(value if name.endswith("_groups") else ("image", value), value)
    if re.search("experts_per_tok|moe_topk$|top_k_experts|moe_k$", name):
        return min(value, 2)
    if re.search("experts$|n_group$|topk_group", name):
        return min(value, {"topk_group": 1, "n_group": 2}.get(name, 4))
    if _IS_DEPTH.search(name) and "extract_layers" not in name:
        return min(value, scale.layers)
    if scale.fewer_heads and re.search("heads?$", name):
        return max(1, value // scale.width)
    if (scale.fewer_heads and re.search("head_|headdim", name)) or scale.width == 1:
        return value
    if value >= 32 and _IS_WIDTH.search(name) and not _IS_NO_WIDTH.search(name):
        return sizes.setdefault(value, max(4, value // scale.width // 4 * 4))
    return value


def make(kind: str, mapping: str = "MODEL_MAPPING") -> tuple[nn.Module, dict[str, Any]]:
    """Return the smallest model of a type that runs, and its inputs, or raise ValueError.

    ``mapping`` is the name of the mapping of transformers that has the class of the model.
    """
    errors: list[str] = []
    for scale in SCALES:
        try:
            module, config = build(kind, scale, mapping)
            return module, find_inputs(copy.deepcopy(module.eval()), config)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:300])
    raise ValueError(" | ".join(dict.fromkeys(errors)))
