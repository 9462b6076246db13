"""Runs of the trainers of transformers and trl, which wrap a model if they see two devices."""

import tempfile
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import tokenizers
import transformers
from accelerate.state import AcceleratorState
from torch import nn

import impl

from . import Variant
from .language_models import decoder

#: The texts that the models learn.
SENTENCES = ["the cat is small", "a red house", "the old dog is on the table", "the dog"] * 4
#: The words that the models know: those of the texts, and three others.
WORDS = sorted({"not", "very", "with"}.union(*map(str.split, SENTENCES)))


def word_tokenizer() -> Any:
    """Return a tokenizer of the words in the sentences."""
    words = {word: number for number, word in enumerate(["[PAD]", "[BOS]", "[EOS]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]"
    )


def train_with(
    build_trainer: Callable[[Any, Any], Any], config: type[Any], variant: Variant
) -> list[Any]:
    """Return the losses of two steps, and the trained weights.

    ``build_trainer`` gets the model and the arguments, of the class ``config``. The trainer sees
    the devices of the variant only after it is built, because trl refuses several devices before.
    """
    AcceleratorState._reset_state(reset_partial_state=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict("os.environ", ACCELERATE_TORCH_DEVICE=variant.device),
        mock.patch.object(nn, "DataParallel", _wrapper_class(variant)),
        warnings.catch_warnings(),
    ):
        if variant.library is impl:
            warnings.filterwarnings("error", "Was asked to gather")
        arguments = config(
            folder,
            max_steps=2,
            per_device_train_batch_size=8,
            learning_rate=0.1,
            optim="sgd",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            bf16=False,
        )
        arguments._n_gpu = 1
        model = decoder(name_or_path=folder)
        trainer = build_trainer(model, arguments)
        arguments._n_gpu = max(1, len(variant.device_ids))
        trainer.train()
    assert isinstance(trainer.model_wrapped, variant.data_parallel or type(model))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [losses, [weight.detach() for weight in model.parameters()]]


def _wrapper_class(variant: Variant) -> type[nn.Module]:
    """Return a class that wraps a module on the devices of ``variant``."""
    base: Any = variant.data_parallel or nn.DataParallel

    class Wrapper(base):  # type: ignore[misc] # the class is known at run time only
        scalar_warning = False

        def __init__(self, module: nn.Module) -> None:
            super().__init__(module, list(variant.device_ids))

    return Wrapper
