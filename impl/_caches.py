"""Caches of transformers: the attributes of their objects that hold rows of the batch.

A cache contains layers, and a layer contains tensors. Iterating over a cache yields keys and
values only, so a cache that is built from them may lack tensors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._attributes import attributes_of, is_same
from ._containers import Branch
from ._inputs import find_tensors

_MODULE = "transformers.cache_utils"
#: For each class of ``_MODULE``: its attributes with caches, layers, or tensors whose first
#: dimension is the batch.
_ROWS = {
    "Cache": ("layers",),
    "EncoderDecoderCache": ("self_attention_cache", "cross_attention_cache"),
    "CacheLayerMixin": ("keys", "values"),
    "DynamicIndexedLayer": ("indexer_keys",),
    "LinearAttentionCacheLayerMixin": ("conv_states", "recurrent_states"),
}


class CacheBranch(Branch):
    """The node of a cache or of a layer. The parts are the attributes of :func:`row_names`."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template without calling its class, and set its attributes."""
        built = object.__new__(type(self.template))
        vars(built).update(vars(self.template))
        vars(built).update(zip(row_names(self.template), parts, strict=True))
        return built


def row_names(value: object) -> list[str]:
    """Return the names of the attributes of a cache, or of its layer, that contain rows.

    Return none for other objects.
    """
    kinds = type(value).__mro__
    names = [_ROWS.get(kind.__name__, ()) for kind in kinds if kind.__module__ == _MODULE]
    return [name for each in names for name in each if name in vars(value)]


def check_other_attributes(values: Sequence[Any]) -> None:
    """Raise ValueError if caches, or layers, differ in attributes that contain no rows."""
    first = values[0]
    names = row_names(first)
    for index, value in enumerate(values):
        if type(value) is not type(first):
            raise ValueError(f"replica {index} returned a {type(value).__name__}")
        others, _ = attributes_of(value)
        for name in {**vars(first), **others}.keys() - names:
            attribute = others.get(name)
            if any(tensor.dim() for tensor in find_tensors([attribute], name)):
                raise ValueError(
                    f"the batch dimension of {type(value).__name__}.{name} is unknown"
                )
            if not _is_shared(vars(first).get(name), attribute):
                raise ValueError(f"{type(value).__name__}.{name} differs in replica {index}")


def _is_shared(first: Any, value: Any) -> bool:
    if isinstance(first, torch.device):
        return isinstance(value, torch.device)
    if isinstance(first, Tensor) and isinstance(value, Tensor):
        value = value.to(first.device)
    return is_same(first, value)
