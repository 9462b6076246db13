"""Inputs of models of transformers, found by the names of their arguments."""

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

#: The number of rows of a batch: three for the first device, two for the second one.
ROWS = 5
#: Names of fields of a configuration.
MAIN_WIDTH = ("hidden_size", "d_model", "embed_dim", "n_embd", "dim", "embedding_dim")
_CODEBOOKS = ("num_quantizers", "n_codebooks", "num_codebooks")
_MEL = ("num_mel_bins", "feature_size", "input_dim", "n_mels", "input_feat_size")
_IMAGE_TOKEN = ("image_token_id", "image_token_index", "media_placeholder_token_id")
#: Names of arguments that are passed if a forward has them, and of those that some need.
_MAIN = [
    *("input_ids", "bbox", "pixel_values", "input_features", "input_values"),
    "decoder_input_ids",
]
_OTHERS = (
    "(features|position|(image|pixel)_attention)_mask"
    "|target_sizes|spatial_shapes|^encoder_hidden_states"
)


def find_inputs(module: nn.Module, config: Any) -> dict[str, Tensor]:
    """Return arguments that the forward of ``module`` takes, or raise ValueError."""
    parameters = inspect.signature(module.forward).parameters
    required = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    known = [*parameters]  # The main name of a model may be a list.
    main = [name for name in (*_MAIN, getattr(module, "main_input_name", "")) if name in known]
    texts = [name for name in main if name.endswith("_ids")]
    others = [name for name in parameters if re.search(_OTHERS, name)]
    errors: list[str] = []
    for some in (
        [*required, *main],
        required or main[:1],
        [*required, *texts],
        *([*required, *main, name] for name in others),
        [*required, *main, *others],
    ):
        for inputs in itertools.islice(_choices([*dict.fromkeys(some)], module, config), 12):
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


def _choices(names: list[str], module: nn.Module, config: Any) -> Iterator[dict[str, Tensor]]:
    """Yield values of arguments; those with few that are not the first for their name go first."""
    linear = next((each for each in module.modules() if isinstance(each, nn.Linear)), None)
    width = linear.in_features if linear else 0
    lists = [[*_candidates(name, config, width)] for name in names]
    if any(name.endswith("grid_thw") for name in names):
        pixels, sizes = _patches_of(config)
        patches = [pixels, pixels.view(len(pixels), -1, config.patch_size, config.patch_size)]
        lists = [[sizes] if name.endswith("thw") else patches for name in names]
    for choice in sorted(itertools.product(*(range(len(each)) for each in lists)), key=sum):
        values = [each[index] for each, index in zip(lists, choice, strict=True)]
        yield dict(zip(names, values, strict=True))


def _add_image_tokens(
    module: nn.Module, config: Any, inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Add one token to the text for each image feature, if the model replaces them."""
    token = next((vars(config)[name] for name in _IMAGE_TOKEN if vars(config).get(name)), None)
    if token is None or not {"input_ids", "pixel_values"} <= set(inputs):
        return inputs
    compute: Any = getattr(module, "get_image_features", lambda pixel_values: None)
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
    count = max(count // rows, first_field(config, "num_query_tokens", default=0))
    image = torch.full((rows, count), token)
    inputs = {**inputs, **extra, "input_ids": torch.cat([image, inputs["input_ids"]], 1)}
    if "mm_token_type_ids" in inspect.signature(module.forward).parameters:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == token).int()
    return inputs


def _candidates(name: str, config: Any, width: int) -> Iterator[Tensor]:
    """Yield tensors that an argument may take. ``width`` is that of the first linear layer."""
    count = first_field(config, *_CODEBOOKS, default=4)
    if name == "bbox":
        yield torch.arange(4).expand(ROWS, 8, 4).contiguous()
    elif name == "pixel_position_ids":
        yield torch.cartesian_prod(torch.arange(4), torch.arange(4)).expand(ROWS, 16, 2)
    elif name == "task_inputs":
        yield torch.randn(ROWS, config.task_seq_len)
    elif name in ("target_sizes", "spatial_shapes"):
        yield torch.full((ROWS, 2), 4)
    elif name == "freq":
        yield torch.zeros(ROWS, 1, dtype=torch.int64)
    elif name.endswith("_ids") or name == "inputs":
        shapes: Any = ((8,), (8, count), (8, count + 1))
        yield from (torch.randint(3, 9, (ROWS, *shape)) for shape in shapes)
        if name == "inputs":
            yield torch.randn(ROWS, 8, first_field(config, *MAIN_WIDTH, default=8))
    elif "codes" in name:
        yield from (torch.randint(0, 4, (ROWS, shape, 8)) for shape in (count, 1))
    else:
        make = torch.ones if "mask" in name else torch.randn
        yield from (make(ROWS, *shape) for shape in _shapes(name, config, width))


def _shapes(name: str, config: Any, width: int) -> Iterator[tuple[int, ...]]:
    """Yield shapes of a row of images, sounds, time series or hidden states."""
    if "pixel_values" in name:
        size = first_field(config, "image_size", default=64)
        size = size if isinstance(size, int) else 64
        channels = first_field(config, "num_channels", "in_channels", "in_chans", default=3)
        frames = first_field(config, "num_frames", "frames_per_clip", default=2)
        for image in dict.fromkeys([(channels, size, size), (3, size, size)]):
            yield from (image, (frames, *image), (1, *image))
        yield (16, channels * first_field(config, "patch_size", default=14) ** 2)
        yield from ((channels, 4 * size, 4 * size), (channels, 160, 320), (channels, 32, 128))
    elif name in ("input_features", "input_values", "audio_values", "audio_mel"):
        if name.endswith("_values"):
            yield from ((3840,), (1, 3840))
        mel = first_field(config, *_MEL, default=80)
        length = first_field(config, "max_source_positions", "max_length", default=32)
        for frames in dict.fromkeys((64, 2 * length, length)):
            yield from ((mel, frames), (frames, mel))
        yield from ((1, 64, mel), (64, width))
    elif name.startswith("past_"):
        length = first_field(config, "context_length", "prediction_length", default=32)
        features = first_field(config, "num_time_features", default=0)
        yield (length, first_field(config, "num_input_channels", default=1))
        yield from [(length + 7, features)] if "features" in name else [(length + 7,), (length,)]
    elif "mask" in name:
        is_sound, is_image = "features" in name or "mel" in name, "image_attention" in name
        yield (64,) if is_sound else (16,) if "pixel" in name else (8, 1)[: 1 + is_image]
    elif name.endswith(("embeds", "hidden_states", "latents")):
        names = (*MAIN_WIDTH, "hidden_sizes", "input_size")
        encoder = ("encoder_hidden_size",) * name.startswith("encoder")
        size = first_field(config, *encoder, *names, default=8)
        yield from ((8, size), (8, width), (size, 8))


def _patches_of(vision: Any) -> tuple[Tensor, Tensor]:
    """Return the patches of four images, and the sizes of the images.

    The first dimension of the images is that of all their patches: rows of equal images are
    divided correctly only if the number of rows is even.
    """
    side = 2 * first_field(vision, "spatial_merge_size", "merge_size", default=2)
    channels = first_field(vision, "in_channels", "in_chans", "num_channels", default=3)
    depth = first_field(vision, "temporal_patch_size", "patch_temporal", default=1)
    pixels = torch.randn(4 * side * side, depth * channels * vision.patch_size**2)
    return pixels, torch.tensor([[1, side, side]] * 4)


def parts_of(config: Any) -> Iterator[Any]:
    """Yield a configuration, and those that are nested in it."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from parts_of(value)


def first_field(config: Any, *names: str, default: Any = None) -> Any:
    """Return the first of the fields in ``config`` or in its parts; of a list, the last member."""
    for part, name in itertools.product(parts_of(config), names):
        value = vars(part).get(name)
        if value is not None:
            return value[-1] if isinstance(value, list | tuple) and value else value
    return default
