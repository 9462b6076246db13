"""Inputs of models of transformers, found by the names of their arguments."""

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["MAIN_WIDTH", "ROWS", "find_inputs", "first_field", "parts_of"]

#: The number of rows of a batch: three for the first device, two for the second one.
ROWS = 5
#: Names of fields of a configuration.
MAIN_WIDTH = ("hidden_size", "d_model", "embed_dim", "n_embd", "dim", "embedding_dim")


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
    main = [*main, getattr(module, "main_input_name", "")]
    main = [name for name in main if name in [*parameters]]
    texts = [name for name in main if name.endswith("_ids")]
    others = [
        name
        for name in parameters
        if re.search(
            "features_mask|(position|image_attention)_mask|target_sizes|^encoder_hidden_states",
            name,
        )
    ]
    linear = next((each for each in module.modules() if isinstance(each, nn.Linear)), None)
    width = linear.in_features if linear else 0
    errors: list[str] = []
    for some in (
        [*required, *main],
        required or main[:1],
        [*required, *texts],
        *([*required, *main, name] for name in others),
    ):
        lists = [[*_candidates(name, config, width)] for name in dict.fromkeys(some)]
        if any(name.endswith("grid_thw") for name in required):
            pixels, sizes = _patches_of(config)
            patches = [pixels, pixels.view(len(pixels), -1, config.patch_size, config.patch_size)]
            lists = [[sizes] if name.endswith("thw") else patches for name in dict.fromkeys(some)]
        # Those in which few arguments have another value than their first come first.
        choices = sorted(itertools.product(*(range(len(each)) for each in lists)), key=sum)
        for choice in choices[:12]:
            values = [each[index] for each, index in zip(lists, choice, strict=True)]
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
    count = max(count // rows, first_field(config, ("num_query_tokens",), 0))
    image = torch.full((rows, count), token)
    inputs = {**inputs, **extra, "input_ids": torch.cat([image, inputs["input_ids"]], 1)}
    if "mm_token_type_ids" in inspect.signature(module.forward).parameters:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == token).int()
    return inputs


def _candidates(name: str, config: Any, width: int) -> Iterator[Tensor]:
    """Yield tensors that the argument ``name`` of a forward may take.

    Args:
        name: The name of the argument.
        config: The configuration of the model.
        width: The number of features that the first linear layer takes.
    """
    count = first_field(config, ("num_quantizers", "n_codebooks", "num_codebooks"), 4)
    if name == "bbox":
        yield torch.arange(4).expand(ROWS, 8, 4).contiguous()
    elif name == "pixel_position_ids":
        yield torch.cartesian_prod(torch.arange(4), torch.arange(4)).expand(ROWS, 16, 2)
    elif name == "task_inputs":
        yield torch.randn(ROWS, config.task_seq_len)
    elif name == "target_sizes":
        yield torch.full((ROWS, 2), 4)
    elif name.endswith("_ids") or name == "inputs":
        yield from (
            torch.randint(3, 9, (ROWS, *shape)) for shape in ((8,), (8, count), (8, count + 1))
        )
        if name == "inputs":
            yield torch.randn(ROWS, 8, first_field(config, MAIN_WIDTH, 8))
    elif "codes" in name:
        yield from (torch.randint(0, 4, (ROWS, shape, 8)) for shape in (count, 1))
    else:
        for shape in _shapes(name, config, width):
            yield torch.ones(ROWS, *shape) if "mask" in name else torch.randn(ROWS, *shape)


def _shapes(name: str, config: Any, width: int) -> Iterator[tuple[int, ...]]:
    """Yield shapes of a row of images, sounds, time series or hidden states."""
    if "pixel_values" in name:
        size, patch = (
            first_field(config, ("image_size",), 64),
            first_field(config, ("patch_size",), 14),
        )
        size = size if isinstance(size, int) else 64
        channels = first_field(config, ("num_channels", "in_channels", "in_chans"), 3)
        frames = first_field(config, ("num_frames", "frames_per_clip"), 2)
        for image in dict.fromkeys([(channels, size, size), (3, size, size)]):
            yield from (image, (frames, *image), (1, *image))
        yield (16, channels * patch**2)
        yield from ((channels, 4 * size, 4 * size), (channels, 160, 320), (channels, 32, 128))
    elif name in ("input_features", "input_values", "audio_values", "audio_mel"):
        if name.endswith("_values"):
            yield from ((3840,), (1, 3840))
        mel = first_field(
            config, ("num_mel_bins", "feature_size", "input_dim", "n_mels", "input_feat_size"), 80
        )
        length = first_field(config, ("max_source_positions", "max_length"), 32)
        for frames in dict.fromkeys((64, 2 * length, length)):
            yield from ((mel, frames), (frames, mel))
        yield from ((1, 64, mel), (64, width))
    elif name.startswith("past_"):
        length = first_field(config, ("context_length", "prediction_length"), 32)
        features = first_field(config, ("num_time_features",), 0)
        yield (length, first_field(config, ("num_input_channels",), 1))
        yield (length + 7, features) if "features" in name else (length + 7,)
    elif "mask" in name:
        yield (
            (64,)
            if "features" in name or "mel" in name
            else (8, 1)[: 1 + ("image_attention" in name)]
        )
    elif name.endswith(("embeds", "hidden_states", "latents")):
        names = (*MAIN_WIDTH, "hidden_sizes", "input_size")
        size = first_field(
            config, ("encoder_hidden_size",) * name.startswith("encoder") + names, 8
        )
        yield from ((8, size), (8, width), (size, 8))


def _patches_of(vision: Any) -> tuple[Tensor, Tensor]:
    """Return the patches of four images, and the sizes of the images.

    The first dimension of the images is that of all their patches: rows of equal images are
    divided correctly only if the number of rows is even.
    """
    side = 2 * first_field(vision, ("spatial_merge_size", "merge_size"), 2)
    channels = first_field(vision, ("in_channels", "in_chans", "num_channels"), 3)
    depth = first_field(vision, ("temporal_patch_size", "patch_temporal"), 1)
    pixels = torch.randn(4 * side * side, depth * channels * vision.patch_size**2)
    return pixels, torch.tensor([[1, side, side]] * 4)


def parts_of(config: Any) -> Iterator[Any]:
    """Yield a configuration, and those that are nested in it."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from parts_of(value)


def first_field(config: Any, names: tuple[str, ...], default: Any = None) -> Any:
    """Return the first of the fields in ``config`` or in its parts; of a list, the last member."""
    for part in parts_of(config):
        for name in names:
            value = vars(part).get(name)
            if value is not None:
                return value[-1] if isinstance(value, list | tuple) and value else value
    return default
