"""Eight models of different kinds, larger than those that only test correctness."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.cuda_stand_ins import stub_libraries

# transformers imports torchvision, whose wheel needs CUDA libraries.
stub_libraries.load_stubs()

#: The number of rows of a batch.
ROWS = 16
_TOKENS, _VOCABULARY = 32, 2000
_WIDTH = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
#: Probabilities of dropout. Losses of several wrappers are compared, so they may not be random.
_NO_DROPOUT = {
    **dict.fromkeys(["hidden_dropout_prob", "attention_probs_dropout_prob"], 0.0),  # of BERT
    **dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0),  # of GPT-2
}
#: The models return no cache: a cache takes time to gather, and training does not use it.
_TEXT: dict[str, Any] = {
    **_WIDTH,
    **_NO_DROPOUT,
    "vocab_size": _VOCABULARY,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _mean_loss(output: Any) -> Tensor:
    """Return the mean of the losses that the replicas or the plain module returned."""
    loss: Tensor = output["loss"].mean()
    return loss


def _squared_error(output: Tensor) -> Tensor:
    """Return the mean squared difference between ``output`` and 1."""
    return (output - 1).square().mean()


@dataclass(frozen=True)
class TimedModel:
    """A model whose steps are timed.

    Args:
        build: A function that returns the model, with weights from torch's global random state.
        inputs: A function that draws a batch with the given number of rows, as keyword arguments
            or positional arguments.
        loss: A function that computes the loss from the outputs.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Mapping[str, Any] | tuple[Any, ...]]
    loss: Callable[[Any], Tensor] = _mean_loss


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, 128)
        self.layers = nn.LSTM(128, 128, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(256, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of 50 tags for each token."""
        scores: Tensor = self.out(self.layers(self.words(tokens))[0])
        return scores


class Recommender(nn.Module):
    """A click model: 26 embedding tables, the products of all pairs, and a network on top."""

    def __init__(self, tables: int = 26, size: int = 5000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return one score for each row."""
        dense = self.bottom(numbers)
        columns = categories.unbind(1)
        embedded = [table(column) for table, column in zip(self.tables, columns, strict=True)]
        features = torch.stack([dense, *embedded], 1)
        products = features @ features.mT
        size = products.shape[1]
        above = torch.triu_indices(size, size, 1, device=products.device)
        scores: Tensor = self.top(torch.cat([dense, products[:, above[0], above[1]]], 1))
        return scores


def _build_transformer(class_name: str, settings: Mapping[str, Any]) -> nn.Module:
    import transformers

    model_class = getattr(transformers, class_name)
    module: nn.Module = model_class(model_class.config_class(**settings))
    return module


def _build_resnet() -> nn.Module:
    import torchvision

    module: nn.Module = torchvision.models.resnet18(num_classes=10)
    return module


def _build_unet() -> nn.Module:
    import diffusers

    module: nn.Module = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    return module


def _draw_text(rows: int) -> dict[str, Tensor]:
    tokens = torch.randint(3, _VOCABULARY, (rows, _TOKENS))
    return {"input_ids": tokens, "labels": tokens.clone()}


def _draw_labelled_images(rows: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(rows, 3, 64, 64), "labels": torch.arange(rows) % 10}


def _draw_noisy_images(rows: int) -> dict[str, object]:
    return {
        "sample": torch.randn(rows, 4, 16, 16),
        "timestep": torch.randint(0, 1000, (rows,)),
        "encoder_hidden_states": torch.randn(rows, 8, 32),
        # The outputs' class of diffusers cannot be gathered by torch.nn.parallel.
        "return_dict": False,
    }


def _draw_clicks(rows: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, 13), torch.randint(0, 5000, (rows, 26))


#: For each name: the model.
MODELS = {
    # 11 million parameters
    "ResNet-18": TimedModel(
        _build_resnet, lambda rows: (torch.randn(rows, 3, 32, 32),), _squared_error
    ),
    # 12 layers; 17 tokens
    "ViT": TimedModel(
        lambda: _build_transformer(
            "ViTForImageClassification",
            {**_WIDTH, "num_hidden_layers": 12, "image_size": 64, "patch_size": 16}
            | {"num_labels": 10},
        ),
        _draw_labelled_images,
    ),
    "GPT-2": TimedModel(
        lambda: _build_transformer(
            "GPT2LMHeadModel", {**_TEXT, "num_hidden_layers": 12, "n_positions": _TOKENS}
        ),
        _draw_text,
    ),
    "BERT": TimedModel(
        lambda: _build_transformer("BertForMaskedLM", {**_TEXT, "num_hidden_layers": 12}),
        _draw_text,
    ),
    "LSTM tagger": TimedModel(
        Tagger,
        lambda rows: (torch.randint(0, _VOCABULARY, (rows, _TOKENS)),),
        _squared_error,
    ),
    # 4 layers with 8 experts each
    "Mixtral": TimedModel(
        lambda: _build_transformer(
            "MixtralForCausalLM",
            {**_TEXT, "num_hidden_layers": 4, "num_key_value_heads": 2, "num_local_experts": 8}
            | {"head_dim": 32, "intermediate_size": 256},
        ),
        _draw_text,
    ),
    # Denoises images of 16 pixels; convolutions and attention.
    "U-Net": TimedModel(_build_unet, _draw_noisy_images, lambda output: _squared_error(output[0])),
    "recommender": TimedModel(Recommender, _draw_clicks, _squared_error),
}
