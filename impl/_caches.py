"""Caches of transformers: the attributes of their objects that hold rows of the batch.

A cache contains layers, and a layer contains tensors. Iterating over a cache yields keys and
values only, so a cache that is built from them may lack tensors.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ._attributes import attributes_of, is_same
from ._containers import Branch
from ._inputs import find_tensors

#: For the last words of names of classes: their attributes with caches, layers, or tensors, and
#: the dimension of the batch in these tensors. Lists, tuples and dictionaries may contain them.
_ROWS: Mapping[str, Mapping[str, int]] = {
    "Cache": {"layers": 0},
    "EncoderDecoderCache": {"self_attention_cache": 0, "cross_attention_cache": 0},
    "CacheLayerMixin": {"keys": 0, "values": 0},
    "IndexedLayer": {"indexer_keys": 0, "indexer_position_ids": 1},
    "LinearAttentionCacheLayerMixin": {"conv_states": 0, "recurrent_states": 0},
    "DeepseekV4HCACache": {"buffer_kv": 0, "buffer_gate": 0, "compressed_kv": 0},
    "DeepseekV4CSACache": {"overlap_kv": 0, "overlap_gate": 0},
    "MiniMaxCache": {"linear_cache": 0},
    "MiniMaxM3VLSparseCacheLayer": {"idx_keys": 0},
    "MiniMaxM3VLSparseStaticCacheLayer": {"idx_keys": 0},
    "ReferenceSlidingWindowLayer": {"prefill_keys": 0, "prefill_values": 0},
    "ReformerDynamicCache": {"buckets_cache": 0, "states_cache": 0},
    "RNNTDecoderCache": {"cache": 0, "hidden_state": 1, "cell_state": 1},
    "xLSTMCache": {"rnn_state": 0},
    # Caches of convolutions, and their layers.
    "PaddingCache": {"padding_cache": 0},
    "Conv1dCacheLayer": {"cache": 0},
    "Conv2dCacheLayer": {"cache": 0},
}
#: Tensors with one dimension that count tokens, so they are equal in all replicas.
_COUNTS = ("seqlen_offset", "idx_cumulative_length")
#: The number of rows, in layers that reserve memory for them.
_SIZE = "batch_size"


class CacheBranch(Branch):
    """The node of a cache or of a layer. The parts are those of :func:`row_parts`."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template without calling its class, and set its attributes."""
        names = row_dims(self.template)
        built = object.__new__(type(self.template))
        attributes = vars(built)
        attributes.update(vars(self.template))
        for (name, dim), part in zip(names.items(), parts, strict=True):
            attributes[name] = part.movedim(0, dim) if dim and part is not None else part
        states = [part.values() if isinstance(part, dict) else [part] for part in parts]
        tensors = [each for members in states for each in members if isinstance(each, Tensor)]
        for name, value in attributes.items() if tensors else ():
            if isinstance(value, torch.device):
                attributes[name] = tensors[0].device
            elif name == _SIZE:
                attributes[name] = len(tensors[0])
        return built


def row_dims(value: Any) -> dict[str, int]:
    """Return the names of the attributes of a cache, or of its layer, that contain rows.

    The values are the dimensions of the batch. Return an empty dictionary for other objects.
    """
    dims = _class_dims(type(value))  # type: ignore[arg-type] # a class is hashable
    return {name: dim for name, dim in dims.items() if name in vars(value)} if dims else {}


@lru_cache(maxsize=256)
def _class_dims(kind: type) -> dict[str, int]:
    names = [each.__name__ for each in kind.__mro__ if each.__module__.startswith("transformers.")]
    all_dims: dict[str, int] = {}
    for ending, dims in _ROWS.items():
        if any(name.endswith(ending) for name in names):
            all_dims.update(dims)
    return all_dims


def row_parts(value: Any) -> list[Any]:
    """Return the attributes of :func:`row_dims`, their tensors with the batch as dimension 0."""
    parts = [(getattr(value, name), dim) for name, dim in row_dims(value).items()]
    return [part.movedim(dim, 0) if dim and part is not None else part for part, dim in parts]


def check_other_attributes(values: Sequence[Any]) -> None:
    """Raise ValueError if caches, or layers, differ in attributes that contain no rows."""
    first = values[0]
    names = {*row_dims(first), _SIZE}
    for index, value in enumerate(values):
        if type(value) is not type(first):
            raise ValueError(f"replica {index} returned a {type(value).__name__}")
        others, _ = attributes_of(value)
        for name in {**vars(first), **others}.keys() - names:
            attribute = others.get(name)
            tensors = [] if name in _COUNTS else find_tensors([attribute], name)
            if any(tensor.dim() for tensor in tensors):
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
