"""Nodes of the outputs and caches of models whose batch is not dimension 0 of all tensors.

Their tensors are joined with the batch as dimension 0. A cache contains layers, and a layer
contains tensors. Iterating over a cache yields keys and values only, so a cache that is built from
them may lack tensors.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._attributes import attributes_of, is_same
from ._batch_dims import dims_of_object, dims_of_output, read_batch_dims
from ._containers import Branch, MappingBranch
from ._inputs import find_tensors


class CacheBranch(Branch):
    """The node of a cache or of a layer. The parts are its attributes that contain rows."""

    __slots__ = ()
    step_format = ".{}"

    @staticmethod
    def items_of_all(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return the attributes of all replicas, with the batch as dimension 0 of each tensor.

        Raises:
            ValueError: The values differ in attributes that contain no rows.
        """
        _check_other_attributes(values)
        return (
            (name, [_move_batch(vars(value)[name], dim, back=False) for value in values])
            for name, dim in row_dims(values[0]).items()
        )

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template without calling its class, and set its attributes."""
        built = object.__new__(type(self.template))
        attributes = vars(built)
        attributes.update(vars(self.template))
        for (name, dim), part in zip(row_dims(self.template).items(), parts, strict=True):
            attributes[name] = _move_batch(part, dim, back=True)
        states = [part.values() if isinstance(part, dict) else [part] for part in parts]
        tensors = [each for members in states for each in members if isinstance(each, Tensor)]
        for name, value in attributes.items() if tensors else ():
            if isinstance(value, torch.device):
                attributes[name] = tensors[0].device
            elif name == read_batch_dims()["size"]:
                attributes[name] = len(tensors[0])
        return built


def row_dims(value: Any) -> dict[str, int]:
    """Return the attributes that contain rows, if ``value`` is a cache or its layer; else none.

    The values are the dimensions of the batch.
    """
    dims = dims_of_object(type(value))  # type: ignore[arg-type] # a class is hashable
    return {name: dim for name, dim in dims.items() if name in vars(value)} if dims else {}


def _check_other_attributes(values: Sequence[Any]) -> None:
    first = values[0]
    names = {*row_dims(first), read_batch_dims()["size"]}
    for index, value in enumerate(values):
        if type(value) is not type(first):
            raise ValueError(f"replica {index} returned a {type(value).__name__}")
        others, _ = attributes_of(value)
        for name in {**vars(first), **others}.keys() - names:
            attribute, counts = others.get(name), name in read_batch_dims()["counts"]
            if not counts and any(each.dim() for each in find_tensors([attribute], name)):
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


class ModelOutputBranch(MappingBranch):
    """The node of an output of a model."""

    __slots__ = ()

    @classmethod
    def items_of_all(cls, values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return the items of mappings, with the batch as dimension 0 of each tensor.

        An item with only one value has the value for all replicas.
        """
        dims, images = cls._dims(values[0]), read_batch_dims()["images"]
        moved = [_move_batch(value, dims, back=False) for value in values]
        for name, members in MappingBranch.items_of_all(moved):
            if name == images and all(map(_is_list_of_tensors, members)):
                yield name, [type(members[0])(each for one in members for each in one)]
            else:
                yield name, members[:1] if dims.get(name) == "none" else members

    def unflatten(self, count: int, pieces: Any) -> Sequence[Any]:
        built = MappingBranch.unflatten(self, count, pieces)
        return [_move_batch(each, self._dims(self.template), back=True) for each in built]

    @staticmethod
    def _dims(value: Any) -> Mapping[str, Any]:
        return dims_of_output(type(value)) or {}  # type: ignore[arg-type] # a class is hashable


class _PackedImagesBranch(ModelOutputBranch):
    """The node of an output that has the patches of all images in one row."""

    __slots__ = ()

    @staticmethod
    def _dims(value: Any) -> Mapping[str, Any]:
        name = read_batch_dims()["images"]
        images = value.get(name)
        is_packed = isinstance(images, Tensor) and images.dim() == 3
        packed = {"last_hidden_state": 1, "hidden_states": 1, name: 1 if is_packed else "none"}
        return {**ModelOutputBranch._dims(value), **packed}


def find_mapping_branch(
    values: Sequence[Mapping[Any, Any]], dim: int, module: nn.Module | None
) -> type[MappingBranch]:
    """Return the class of the node of mappings that ``module``, if known, has returned."""
    if dim != 0 or dims_of_output(type(values[0])) is None:
        return MappingBranch
    return _PackedImagesBranch if _are_packed(values, module) else ModelOutputBranch


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
    images: list[Any] = [value.get(read_batch_dims()["images"]) for value in values]
    if any(_is_list_of_tensors(each) and len(each) > 1 for each in images):
        return True
    if module is None or type(values[0]).__name__ not in read_batch_dims()["encoder_outputs"]:
        return False
    encoders = read_batch_dims()["packing_encoders"]
    return any(type(each).__name__ in encoders for each in module.modules())


def _move_batch(value: Any, dims: Any, *, back: bool) -> Any:
    """Return ``value`` with the batch of its tensors moved from ``dims`` to 0, or back."""
    if value is None or dims in (0, "none", {}):
        return value
    if isinstance(value, Tensor):
        return value.movedim(0, dims) if back else value.movedim(dims, 0)
    if isinstance(dims, int):
        return type(value)(_move_batch(each, dims, back=back) for each in value)
    moved = list(value) if isinstance(value, tuple) else copy.copy(value)
    for name, dim in dims.items():
        key = int(name) if isinstance(value, tuple) else name  # TOML has no keys that are numbers.
        if isinstance(value, tuple) or key in value:
            moved[key] = _move_batch(value[key], dim, back=back)
    return tuple(moved) if isinstance(value, tuple) else moved


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Tensor) for each in value)
