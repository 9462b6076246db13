"""Small models of all types of transformers, from their default configurations."""

import copy
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["MOST_PARAMETERS", "ROWS", "make", "names"]

#: The number of rows of a batch: three for the first device, two for the second one.
ROWS = 5
#: The models know 256 tokens. The special tokens among them begin with 64.
_VOCABULARY, _TEXT = 256, 64
#: Names of fields of a configuration.
_MAIN_WIDTH = ("hidden_size", "d_model", "embed_dim", "n_embd", "dim", "embedding_dim")
_HEADS = ("num_attention_heads", "encoder_attention_heads", "n_head", "num_heads", "n_heads")
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


def names() -> list[str]:
    """Return the types of models."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return [*MODEL_MAPPING_NAMES]


class Scale(NamedTuple):
    """How much smaller a model is than its default configuration."""

    #: The divisor of all widths, and whether heads are fewer, or else narrower.
    width: int
    fewer_heads: bool
    layers: int
    image: int = 4


#: Values of fields without a default value.
_NEEDED: Mapping[str, Any] = {
    "prediction_length": 4,
    "attn_layer_indices": [1],
    "vocab_size": _VOCABULARY,
    "vocabulary_map": {"<image>": 9, "<|extra_200|>": 10, "<|image token|>": 11},
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "pad_token_id": 1,
    "mask_token_id": 32,
}
#: For types whose default configuration builds no model: other values of its fields.
_CHANGED: Mapping[str, Mapping[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "ministral": {"head_dim": 8},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 48},
}
#: The scales that are tried, one after the other.
SCALES = (
    Scale(16, False, 2),
    Scale(8, True, 4),
    Scale(4, False, 2),
    Scale(2, False, 2),
    Scale(1, False, 2),
    Scale(1, False, 99, 1),
)
MOST_PARAMETERS = 130_000_000


def build(kind: str, scale: Scale) -> tuple[nn.Module, Any]:
    """Return a model of the type ``kind`` with random weights, and its configuration."""
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    config = CONFIG_MAPPING[kind]()
    model_class = MODEL_MAPPING[type(config)]
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    sizes: dict[Any, int] = {}
    for part in _parts(config):
        _note_sizes(part, scale, sizes)
    config = _shrink(config, scale, sizes)
    for part in _parts(config):
        vars(part).update(_CHANGED.get(part.model_type, {}))
    if scale.width < 8:
        with torch.device("meta"):
            count = sum(weight.numel() for weight in model_class(config).parameters())
        if count > MOST_PARAMETERS:
            raise ValueError(f"{count} parameters")
    torch.manual_seed(0)
    return model_class(config), config


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from _parts(value)


def _first(config: Any, names: tuple[str, ...], default: Any = None) -> Any:
    """Return the first of the fields in ``config`` or in its parts; of a list, the last member."""
    for part in _parts(config):
        for name in names:
            value = vars(part).get(name)
            if value is not None:
                return value[-1] if isinstance(value, list | tuple) and value else value
    return default


def _note_sizes(config: Any, scale: Scale, sizes: dict[Any, int]) -> None:
    """Note new values of the main width, a multiple of the heads, and of the size of images."""
    fields = vars(config)
    width = next((fields[name] for name in _MAIN_WIDTH if isinstance(fields.get(name), int)), 0)
    heads = next((fields[name] for name in _HEADS if isinstance(fields.get(name), int)), 0)
    if heads and width % heads == 0:
        head = width // heads
        if scale.fewer_heads:
            sizes.setdefault(width, max(1, heads // scale.width) * head)
        elif scale.width > 1:
            sizes.setdefault(width, heads * max(4, head // scale.width // 4 * 4))
    image, patch = fields.get("image_size"), _first(config, ("patch_size",), 1)
    if isinstance(image, int) and isinstance(patch, int):
        sizes["image", image] = patch * max(2, image // patch // scale.image)


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
    if fields.get("_out_features") != default.get("_out_features"):
        changed["out_features"] = fields["_out_features"]
    kinds = fields.get("layer_types")
    if kinds and "num_hidden_layers" in changed:
        different = [*dict.fromkeys(kinds)]
        changed["layer_types"] = different if len(different) > 1 else different * scale.layers
        changed["num_hidden_layers"] = len(changed["layer_types"])
    depth = default.get("num_hidden_layers", 0)
    for name, value in fields.items():
        if isinstance(value, list | tuple) and len(value) == depth > 8 and name != "layer_types":
            changed[name] = changed.get(name, value)[: changed.get("num_hidden_layers", depth)]
    return type(config)(**changed)


def _shrink_field(name: str, value: Any, scale: Scale, sizes: dict[Any, int]) -> Any:
    if getattr(value, "model_type", "") == "timm_backbone":
        from transformers import ResNetConfig

        stages = [f"stage{number}" for number in range(1, 5)]
        return ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 8, 16, 16],
            depths=[1] * 4,
            out_features=stages[-len(value._out_indices or stages) :],
        )
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
        if re.search("indexes|indices|layer_ids|(?<!num)_blocks$", name):
            return type(value)(
                min(each, number % scale.layers) for number, each in enumerate(value)
            )
        if _IS_DEPTH.search(name):
            most = 1 if len(value) > 2 and scale.layers < 9 else scale.layers
            return type(value)(min(each, most) for each in value)
        return type(value)(_shrink_number(name, each, scale, sizes) for each in value)
    return _shrink_number(name, value, scale, sizes) if isinstance(value, int) else value


def _shrink_number(name: str, value: int, scale: Scale, sizes: dict[Any, int]) -> int:
    if re.search("token_(id|index)s?$|_token$", name):
        return value if value < _TEXT else sizes.setdefault(name, _TEXT + len(sizes))
    if "vocab" in name:
        return min(value, _VOCABULARY)
    if name == "image_size":
        return sizes.get(("image", value), value)
    if re.search("experts_per_tok|moe_topk$|top_k_experts|moe_k$", name):
        return min(value, 2)
    if re.search("experts$|n_group$|topk_group", name):
        return min(value, 1 if name == "topk_group" else 4)
    if _IS_DEPTH.search(name) and "extract_layers" not in name:
        return min(value, scale.layers)
    if scale.fewer_heads and re.search("heads?$", name):
        return max(1, value // scale.width)
    if (scale.fewer_heads and "head_" in name) or scale.width == 1:
        return value
    if value >= 32 and _IS_WIDTH.search(name) and not _IS_NO_WIDTH.search(name):
        return sizes.setdefault(value, max(4, value // scale.width // 4 * 4))
    return value


def _candidates(name: str, config: Any) -> Iterator[Tensor]:
    """Yield tensors that the argument ``name`` of a forward may take."""
    count = _first(config, ("num_quantizers", "n_codebooks", "num_codebooks"), 4)
    if name == "bbox":
        yield torch.arange(4).expand(ROWS, 8, 4).contiguous()
    elif name.endswith("_ids") or name == "inputs":
        yield from (torch.randint(3, 9, (ROWS, *shape)) for shape in ((8,), (8, count)))
        if name == "inputs":
            yield torch.randn(ROWS, 8, _first(config, _MAIN_WIDTH, 8))
    elif "codes" in name:
        yield from (torch.randint(0, 4, (ROWS, shape, 8)) for shape in (count, 1))
    else:
        for shape in _shapes(name, config):
            yield torch.ones(ROWS, *shape) if "mask" in name else torch.randn(ROWS, *shape)


def _shapes(name: str, config: Any) -> Iterator[tuple[int, ...]]:
    """Yield shapes of a row of images, sounds, time series or hidden states."""
    if "pixel_values" in name:
        size, patch = _first(config, ("image_size",), 64), _first(config, ("patch_size",), 14)
        size = size if isinstance(size, int) else 64
        channels = _first(config, ("num_channels", "in_channels", "in_chans"), 3)
        frames = _first(config, ("num_frames", "frames_per_clip"), 2)
        for image in dict.fromkeys([(channels, size, size), (3, size, size)]):
            yield from (image, (frames, *image), (1, *image))
        yield (16, channels * patch**2)
        yield from ((channels, 160, 320), (channels, 32, 128))
    elif name in ("input_features", "input_values", "audio_values"):
        if name != "input_features":
            yield from ((3840,), (1, 3840))
        mel = _first(config, ("num_mel_bins", "feature_size", "input_dim", "n_mels"), 80)
        length = _first(config, ("max_source_positions", "max_length"), 32)
        for frames in dict.fromkeys((64, 2 * length, length)):
            yield from ((mel, frames), (frames, mel))
        yield (1, 64, mel)
    elif name.startswith("past_"):
        length = _first(config, ("context_length", "prediction_length"), 32)
        features = _first(config, ("num_time_features",), 0)
        yield (length, _first(config, ("num_input_channels",), 1))
        yield (length + 7, features) if "features" in name else (length + 7,)
    elif "mask" in name:
        yield (8,)
    elif name.endswith(("embeds", "hidden_states")):
        width = _first(config, (*_MAIN_WIDTH, "hidden_sizes", "input_size"), 8)
        yield from ((8, width), (width, 8))


def _patches_of(vision: Any) -> tuple[Tensor, Tensor]:
    """Return the patches of four images, and the sizes of the images.

    The first dimension of the images is that of all their patches: rows of equal images are
    divided correctly only if the number of rows is even.
    """
    side = 2 * _first(vision, ("spatial_merge_size", "merge_size"), 2)
    channels = _first(vision, ("in_channels", "in_chans", "num_channels"), 3)
    depth = _first(vision, ("temporal_patch_size", "patch_temporal"), 1)
    pixels = torch.randn(4 * side * side, depth * channels * vision.patch_size**2)
    return pixels, torch.tensor([[1, side, side]] * 4)


def make(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return the largest small model of the type ``kind`` that runs, and its inputs.

    Raises:
        ValueError: There is none; the text has the first and the last error.
    """
    errors: list[str] = []
    for scale in SCALES:
        try:
            module, config = build(kind, scale)
            return module, find_inputs(copy.deepcopy(module.eval()), config)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:300])
    raise ValueError(" | ".join(dict.fromkeys(errors)))


def find_inputs(module: nn.Module, config: Any) -> dict[str, Tensor]:
    """Return arguments that the forward of ``module`` takes.

    Raises:
        ValueError: There are none; the text has the errors.
    """
    parameters = inspect.signature(module.forward).parameters
    required = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    main = [
        "input_ids",
        "bbox",
        "pixel_values",
        "input_features",
        "input_values",
        "decoder_input_ids",
    ]
    main = [name for name in (*main, getattr(module, "main_input_name", "")) if name in parameters]
    texts = [name for name in main if name.endswith("_ids")]
    errors: list[str] = []
    for some in ([*required, *main], required or main[:1], [*required, *texts]):
        lists = [[*_candidates(name, config)] for name in dict.fromkeys(some)]
        if "grid_thw" in required:
            lists = [[_patches_of(config)[name == "grid_thw"]] for name in dict.fromkeys(some)]
        for values in itertools.islice(itertools.product(*lists), 8):
            inputs = dict(zip(dict.fromkeys(some), values, strict=True))
            try:
                inputs = _add_image_tokens(module, config, inputs)
                with torch.no_grad():
                    module(**inputs)
            except Exception as error:
                shapes = {name: [*value.shape] for name, value in inputs.items()}
                errors.append(f"{shapes} {type(error).__name__}: {str(error)[:120]}")
            else:
                return inputs
    raise ValueError("; ".join([*errors[:1], *errors[-1:]]) or f"no values of {required or main}")


def _add_image_tokens(
    module: nn.Module, config: Any, inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Add one token to the text for each image feature, if the model replaces them."""
    names = ("image_token_id", "image_token_index", "media_placeholder_token_id")
    token = next((vars(config)[name] for name in names if vars(config).get(name)), None)
    if token is None or not {"input_ids", "pixel_values"} <= set(inputs):
        return inputs
    compute: Any = module.get_image_features
    extra = {}
    if "image_grid_thw" in inspect.signature(compute).parameters:
        inputs = {name: value[:4] for name, value in inputs.items()}
        inputs["pixel_values"], extra["image_grid_thw"] = _patches_of(config.vision_config)
    with torch.no_grad():
        features = compute(pixel_values=inputs["pixel_values"], **extra)
    features = tree_leaves(getattr(features, "pooler_output", features))
    width = config.get_text_config().hidden_size
    count = sum(each.numel() for each in features if torch.is_tensor(each)) // width
    rows = len(inputs["input_ids"])
    image = torch.full((rows, count // rows), token)
    inputs = {**inputs, **extra, "input_ids": torch.cat([image, inputs["input_ids"]], 1)}
    if "mm_token_type_ids" in inspect.signature(module.forward).parameters:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == token).int()
    return inputs
