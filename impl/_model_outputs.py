"""Outputs of models of transformers: fields whose rows are not along dimension 0.

Most fields have the batch as dimension 0. The sizes of tensors do not show the dimension of the
batch, because layers, queries and rows may be equally many. So it is declared for each class.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from ._containers import MappingBranch

__all__ = ["ModelOutputBranch", "row_fields"]

_LAYERS = {"intermediate_hidden_states": 1}
#: The fields of an output whose images are packed into one row.
_PACKED = {"last_hidden_state": 1, "hidden_states": 1}
#: For the first words of names of classes: their fields, and the dimension of the batch in the
#: tensors of a field; of a nested output or tuple, those of its members. None: the field does not
#: depend on the batch.
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "BaseModelOutputWithVisualIndicatorFeatures": {"visual_indicator_features": None},
    "BridgeTower": {"hidden_states": {1: 1}},
    "ConditionalDetr": {**_LAYERS, "reference_points": 1},
    "DFine": _LAYERS,
    "DabDetr": {**_LAYERS, "reference_points": 1},
    "Deimv2": _LAYERS,
    "Detr": _LAYERS,
    "Encodec": {"audio_codes": 1},
    "LwDetr": {**_LAYERS, "intermediate_reference_points": 1},
    "RfDetr": {**_LAYERS, "intermediate_reference_points": 1},
    "TableTransformer": _LAYERS,
    "XLNet": {"mems": 1},
}
#: A field of all classes. If it is a list or tuple, it has one tensor for each image.
_IMAGES = "pooler_output"


class ModelOutputBranch(MappingBranch):
    """The node of an output of a model of transformers."""

    __slots__ = ()

    @staticmethod
    def rows(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return the rows of a mapping, with the batch as dimension 0 of each tensor.

        A row with only one value is the value for all replicas.
        """
        fields = row_fields(values[0]) or {}
        moved = [_move_batch(value, fields, back=False) for value in values]
        for name, row in MappingBranch.rows(moved):
            if name == _IMAGES and all(map(_is_list_of_tensors, row)):
                yield name, [type(row[0])(each for images in row for each in images)]
            else:
                yield name, row[:1] if fields.get(name, 0) is None else row

    def unflatten(self, count: int, pieces: Any) -> Sequence[Any]:
        fields = row_fields(self.template)
        built = MappingBranch.unflatten(self, count, pieces)
        return [_move_batch(each, fields, back=True) for each in built]


def row_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of an output whose rows are not along dimension 0, and their dimensions.

    Return None for an object of another class than those of transformers.
    """
    fields = _class_fields(type(value))  # type: ignore[arg-type] # a class is hashable
    return {**fields, **_PACKED} if fields is not None and _is_packed(value) else fields


@lru_cache(maxsize=256)
def _class_fields(kind: type) -> Mapping[str, Any] | None:
    names = [each.__name__ for each in kind.__mro__ if each.__module__.startswith("transformers.")]
    if "ModelOutput" not in names:
        return None
    found: dict[str, Any] = {}
    for beginning, fields in _FIELDS.items():
        if any(name.startswith(beginning) for name in names):
            found.update(fields)
    return found


def _is_packed(value: Mapping[str, Any]) -> bool:
    """Return whether an output has several images, but only one row."""
    images: Any = value.get(_IMAGES)
    states = value.get("last_hidden_state")
    has_one_row = isinstance(states, Tensor) and states.dim() == 3 and len(states) == 1
    return has_one_row and _is_list_of_tensors(images) and len(images) > 1


def _move_batch(value: Any, dims: Any, *, back: bool) -> Any:
    """Return ``value`` with the batch of its tensors moved from ``dims`` to 0, or back."""
    if value is None or not dims:
        return value
    if isinstance(value, Tensor):
        return value.movedim(0, dims) if back else value.movedim(dims, 0)
    if isinstance(dims, int):
        return type(value)(_move_batch(each, dims, back=back) for each in value)
    moved = list(value) if isinstance(value, tuple) else copy.copy(value)
    for name, dim in dims.items():
        if isinstance(value, tuple) or name in value:
            moved[name] = _move_batch(value[name], dim, back=back)
    return tuple(moved) if isinstance(value, tuple) else moved


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Tensor) for each in value)
