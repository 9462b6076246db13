"""sentence-transformers: ``encode``, which splits, sorts and pads the sentences itself."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentence_transformers
import torch
import transformers
from sentence_transformers import models
from torch import Tensor

from . import Use, Variant
from .trainers import WORDS

_SENTENCES = [
    "the cat is small",
    "a red house",
    "the old dog is on the table",
    "not a very small house with a red table",
    "the dog",
]


def _encoder() -> Any:
    """Return a BERT of one layer with a mean over the words."""
    transformers.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
        Path(folder, "vocab.txt").write_text("\n".join(tokens))
        transformers.BertTokenizer(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
        config = transformers.BertConfig(
            vocab_size=len(tokens),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
        )
        transformers.BertModel(config).save_pretrained(folder)
        transformer = models.Transformer(folder)
    pooling = models.Pooling(transformer.get_word_embedding_dimension())
    return sentence_transformers.SentenceTransformer(
        modules=[transformer, pooling], device="cpu"
    ).eval()


def _encode(variant: Variant) -> list[Tensor]:
    """Encode parts of the sentences on the devices."""
    model = _encoder()
    wrapper = variant.wrap(model)
    if wrapper is model:
        return [model.encode(_SENTENCES, convert_to_tensor=True)]
    batches = [
        {"sentences": _SENTENCES[start : start + 2], "convert_to_tensor": True}
        for start in (0, 2, 4)
    ]
    with torch.no_grad():
        return [torch.cat([each.cpu() for each in wrapper.map(batches, method="encode")])]


def _forward(variant: Variant) -> Any:
    """Split the tokens of a batch."""
    model = _encoder()
    wrapper = variant.wrap(model)
    features = {
        name: value.to(variant.device)
        for name, value in model.tokenize(_SENTENCES).items()
        if torch.is_tensor(value)
    }
    with torch.no_grad():
        return [wrapper(features)["sentence_embedding"]]


USES: Mapping[str, Use] = {
    "encode, by map": _encode,
    "forward of a batch of tokens": _forward,
}
