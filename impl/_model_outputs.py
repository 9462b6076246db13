"""Outputs of models of transformers: fields whose rows are not along dimension 0.

Most fields have the batch as dimension 0. The sizes of tensors do not show the dimension of the
batch, because layers, queries and rows may be equally many. So it is declared for each class. It
is that of outputs that are joined along dimension 0.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from ._containers import MappingBranch

__all__ = ["find_mapping_branch"]

_LAYERS = {"intermediate_hidden_states": 1}
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
    "Sam3": {"decoder_reference_boxes": 1},
    "TableTransformer": _LAYERS,
    "XLNet": {"mems": 1},
}
#: A field of all classes. If it is a list or tuple, it has one tensor for each image.
_IMAGES = "pooler_output"
#: The image encoders that pack all images of a batch into one row, and the classes of their
#: outputs.
_PACKING_ENCODERS = {
    "HYV4VLVisionModel",
    "HunYuanVLVisionTransformer",
    "MiniMaxM3VLVisionModel",
    "PixtralVisionModel",
}
_ENCODER_OUTPUTS = ("BaseModelOutput", "BaseModelOutputWithPooling")


class ModelOutputBranch(MappingBranch):
    """The node of an output of a model of transformers."""

    __slots__ = ()

    @classmethod
    def rows(cls, values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return the rows of a mapping, with the batch as dimension 0 of each tensor.

        A row with only one value is the value for all replicas.
        """
        fields = cls._fields(values[0])
        moved = [_move_batch(value, fields, back=False) for value in values]
        for name, row in MappingBranch.rows(moved):
            if name == _IMAGES and all(map(_is_list_of_tensors, row)):
                yield name, [type(row[0])(each for images in row for each in images)]
            else:
                yield name, row[:1] if fields.get(name, 0) is None else row

    def unflatten(self, count: int, pieces: Any) -> Sequence[Any]:
        fields = self._fields(self.template)
        built = MappingBranch.unflatten(self, count, pieces)
        return [_move_batch(each, fields, back=True) for each in built]

    @classmethod
    def _fields(cls, value: Any) -> Mapping[str, Any]:
        """Return the fields whose rows are not along dimension 0, and their dimensions."""
        return _class_fields(type(value)) or {}  # type: ignore[arg-type] # a class is hashable


class _PackedImagesBranch(ModelOutputBranch):
    """The node of an output that has the patches of all images in one row."""

    __slots__ = ()

    @classmethod
    def _fields(cls, value: Any) -> Mapping[str, Any]:
        images = value.get(_IMAGES)
        is_packed = isinstance(images, Tensor) and images.dim() == 3
        packed = {"last_hidden_state": 1, "hidden_states": 1, _IMAGES: 1 if is_packed else None}
        return {**ModelOutputBranch._fields(value), **packed}


def find_mapping_branch(
    values: Sequence[Mapping[Any, Any]], dim: int, module: nn.Module | None
) -> type[MappingBranch]:
    """Return the class of the node of mappings that are joined along ``dim``.

    ``module`` is the module that has returned them, if it is known.
    """
    if dim != 0 or _class_fields(type(values[0])) is None:
        return MappingBranch
    return _PackedImagesBranch if _are_packed(values, module) else ModelOutputBranch


@lru_cache(maxsize=256)
def _class_fields(kind: type) -> Mapping[str, Any] | None:
    names = [each.__name__ for each in kind.__mro__ if each.__module__.startswith("transformers.")]
    if "ModelOutput" not in names:
        return None
    all_fields: dict[str, Any] = {}
    for beginning, fields in _FIELDS.items():
        if any(name.startswith(beginning) for name in names):
            all_fields.update(fields)
    return all_fields


def _are_packed(values: Sequence[Mapping[str, Any]], module: nn.Module | None) -> bool:
    """Return whether each output has the patches of its images in one row.

    An output with one row and several images does. An output with one image may, so the module
    decides.
    """
    if not all(isinstance(value, Mapping) for value in values):
        return False
    states = [value.get("last_hidden_state") for value in values]
    if not all(isinstance(each, Tensor) and each.dim() == 3 and len(each) == 1 for each in states):
        return False
    images: list[Any] = [value.get(_IMAGES) for value in values]
    if any(_is_list_of_tensors(each) and len(each) > 1 for each in images):
        return True
    if module is None or type(values[0]).__name__ not in _ENCODER_OUTPUTS:
        return False
    return any(type(each).__name__ in _PACKING_ENCODERS for each in module.modules())


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
