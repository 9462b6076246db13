"""trl: trainers that bind another forward to the model, and pass the model as an argument."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import trl
from datasets import Dataset
from trl.models.utils import _ForwardRedirection

from . import Use, Variant
from .language_models import SEQUENCES, decoder
from .trainers import SENTENCES, train_with, word_tokenizer

_PREFERENCES = [
    {"prompt": "the cat is", "chosen": " small", "rejected": " not red"},
    {"prompt": "a red", "chosen": " house with a table", "rejected": " cat"},
] * 8


def _sft(model: Any, arguments: Any) -> Any:
    data = Dataset.from_list([{"text": each} for each in SENTENCES])
    return trl.SFTTrainer(model, arguments, train_dataset=data, processing_class=word_tokenizer())


def _dpo(model: Any, arguments: Any) -> Any:
    return trl.DPOTrainer(
        model,
        ref_model=decoder(),
        args=arguments,
        train_dataset=Dataset.from_list(_PREFERENCES),
        processing_class=word_tokenizer(),
    )


def _loss(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def _redirect(variant: Variant) -> list[Any]:
    """Run a function of the model by the forward of the wrapper, as GRPOTrainer does."""
    model = decoder()
    wrapper, tokens = variant.wrap(model), SEQUENCES.to(variant.device)
    loss = _ForwardRedirection()(wrapper, model, _loss, model, tokens).mean()
    loss.backward()
    return [loss, [weight.grad for weight in model.parameters()]]


USES: Mapping[str, Use] = {
    "`SFTTrainer` on two devices": partial(train_with, _sft, trl.SFTConfig),
    "`DPOTrainer` on two devices": partial(train_with, _dpo, trl.DPOConfig),
    "a function of the model by the forward of the wrapper, as in `GRPOTrainer`": _redirect,
}
