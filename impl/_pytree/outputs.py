"""Flattening of the nested outputs of several replicas into tensors to gather, and constants.

The first replica's output determines the structure.
"""

import enum
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .containers import (
    Branch,
    Constant,
    FieldsBranch,
    KeyPath,
    Leaf,
    ListBranch,
    MappingBranch,
    NamedTupleBranch,
    Node,
    TupleBranch,
    field_names,
    format_path,
    is_dataclass_instance,
    is_named_tuple,
)

#: Types that are iterable, but are no containers of outputs.
_SINGLE_VALUES = (
    str,
    bytes,
    bytearray,
    memoryview,
    range,
    torch.Size,
    enum.Enum,
    nn.Module,
    type,
    Iterator,
)

#: If a part is of one of these types in one replica, it must be so in all replicas.
_UNIFORM_TYPES: dict[type, str] = {
    type(None): "None",
    Tensor: "a tensor",
    PackedSequence: "a packed sequence",
}

#: Errors that the class of a container did not cause.
_MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)


class GatheredLeaf(Leaf):
    """Tensors, one from each replica, that are gathered into one.

    Attributes:
        tensors: The tensors, or the data of the packed sequences.
        packed: The packed sequences; empty for tensors.
    """

    __slots__ = ("packed", "tensors")

    def __init__(self, tensors: Sequence[Tensor], packed: Sequence[PackedSequence] = ()) -> None:
        self.tensors = tensors
        self.packed = packed


class _MakeNamedTupleBranch(NamedTupleBranch):
    """A named tuple that is built by ``_make``, which does not call its constructor."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)._make(parts)


class _IterableBranch(Branch):
    """Another iterable, whose class is called with one iterable of the parts.

    Args:
        template: The iterables of all replicas. They are listed if the class raises an error.
        children: The nodes of the parts.
    """

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        try:
            return type(self.template[0])(parts)
        except _MEMORY_ERRORS:
            raise
        except Exception as error:
            _warn_not_gathered(self.template, "be built from joined parts", error)
            return list(self.template)


class OutputLeaves:
    """The leaves of flattened outputs.

    Attributes:
        gathered: The leaves.
    """

    __slots__ = ("gathered",)

    def __init__(self) -> None:
        self.gathered: list[GatheredLeaf] = []

    def flatten(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Flatten one part of the outputs of all replicas, and add its leaves to this object.

        Args:
            values: One value from each replica, at least one.
            path: The path of this part.

        Raises:
            ValueError: Some values are None or tensors, and others are not; or dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key of the first replica's.
            RecursionError: Values are nested deeper than the recursion limit.
        """
        _check_uniform(values, path)
        handler = _HANDLERS.get(type(values[0])) or _find_handler(values)
        return handler(self, values, path)

    def _flatten_container(self, values: Sequence[Any], path: KeyPath) -> Branch:
        # One stack frame per level, as in `InputLeaves`.
        branch = _find_branch(values[0])
        children: list[Node] = []
        for step, row in _ITEMS[branch](values):
            part = (path, branch.step_format, step)
            _check_uniform(row, part)
            handler = _HANDLERS.get(type(row[0])) or _find_handler(row)
            children.append(handler(self, row, part))
        return branch(values[0], children)

    def _flatten_iterable(self, values: Sequence[Any], path: KeyPath) -> Node:
        try:
            members = [list(value) for value in values]
        except _MEMORY_ERRORS:
            raise
        except Exception as error:
            _warn_not_gathered(values, "be iterated over", error)
            return self._flatten_values(values, path)
        return _IterableBranch(values, self._flatten_container(members, path).children)

    def _flatten_tensors(self, values: Sequence[Tensor], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf(values))

    def _flatten_packed(self, values: Sequence[PackedSequence], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf([value.data for value in values], values))

    def _add_leaf(self, leaf: GatheredLeaf) -> Node:
        self.gathered.append(leaf)
        return leaf

    def _flatten_none(self, values: Sequence[None], path: KeyPath) -> Node:
        return Constant(None)

    def _flatten_values(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Return a list of other values, in the order of the replicas."""
        return Constant(list(values))


_Items = Iterable[tuple[Any, Sequence[Any]]]


def _sequence_items(values: Sequence[Any]) -> _Items:
    return enumerate(zip(*values, strict=True))


def _named_tuple_items(values: Sequence[Any]) -> _Items:
    return zip(values[0]._fields, zip(*values, strict=True), strict=True)


def _mapping_items(values: Sequence[Mapping[Any, Any]]) -> _Items:
    if len({len(value) for value in values}) > 1:
        raise ValueError("All dicts must have the same number of keys")
    keys = values[0].keys()
    return ((key, [value[key] for value in values]) for key in keys)


def _field_items(values: Sequence[Any]) -> _Items:
    names = field_names(values[0])
    return ((name, [getattr(value, name) for value in values]) for name in names)


#: For each kind of container, its parts: the step, and the part of each replica.
_ITEMS: dict[type[Branch], Callable[[Sequence[Any]], _Items]] = {
    TupleBranch: _sequence_items,
    ListBranch: _sequence_items,
    MappingBranch: _mapping_items,
    _MakeNamedTupleBranch: _named_tuple_items,
    FieldsBranch: _field_items,
}

_Handler = Callable[[OutputLeaves, Sequence[Any], KeyPath], Node]

#: Handlers by exact type, as for inputs.
_HANDLERS: dict[type, _Handler] = {
    Tensor: OutputLeaves._flatten_tensors,
    tuple: OutputLeaves._flatten_container,
    list: OutputLeaves._flatten_container,
    dict: OutputLeaves._flatten_container,
    PackedSequence: OutputLeaves._flatten_packed,
    type(None): OutputLeaves._flatten_none,
    **dict.fromkeys([bool, int, float, complex, str, bytes], OutputLeaves._flatten_values),
}
_BRANCHES: dict[type, type[Branch]] = {tuple: TupleBranch, list: ListBranch, dict: MappingBranch}


def _find_handler(values: Sequence[Any]) -> _Handler:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _HANDLERS[kind]
    if isinstance(first, Mapping) or is_named_tuple(first):
        return OutputLeaves._flatten_container
    if _is_single_value(first) or _are_unordered(values):
        return OutputLeaves._flatten_values
    if is_dataclass_instance(first):
        return OutputLeaves._flatten_container
    return OutputLeaves._flatten_iterable


def _find_branch(first: Any) -> type[Branch]:
    if type(first) in _BRANCHES:
        return _BRANCHES[type(first)]
    if isinstance(first, Mapping):
        return MappingBranch
    return _MakeNamedTupleBranch if is_named_tuple(first) else FieldsBranch


def _is_single_value(value: Any) -> bool:
    if isinstance(value, _SINGLE_VALUES) or hasattr(value, "__array__"):
        return True
    is_sequence = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return not (is_sequence or hasattr(value, "__iter__") or is_dataclass_instance(value))


def _are_unordered(values: Sequence[Any]) -> bool:
    """Return whether these are sets with members other than tensors, which have no order."""
    return all(isinstance(value, set | frozenset) for value in values) and not all(
        isinstance(member, Tensor) for value in values for member in value
    )


def _check_uniform(values: Sequence[Any], path: KeyPath) -> None:
    """Raise ValueError if some replicas have None, a tensor or a packed sequence, others not."""
    if len(set(map(type, values))) == 1:
        return
    for kind, name in _UNIFORM_TYPES.items():
        matches = [index for index, value in enumerate(values) if isinstance(value, kind)]
        others = [index for index in range(len(values)) if index not in matches]
        if matches and others:
            raise ValueError(
                f"{format_path(path)} is {name} in replicas {matches}, "
                f"but not in replicas {others}"
            )


def _warn_not_gathered(values: Sequence[Any], verb: str, error: Exception) -> None:
    name = type(values[0]).__name__
    # Unlike `str(error)`, this never raises.
    reason = traceback.format_exception_only(error)[-1].strip()
    warnings.warn(
        f"{name} among the outputs cannot {verb} ({reason}), so those of all replicas are listed",
        UserWarning,
        stacklevel=2,
    )
