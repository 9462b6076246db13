"""What nested outputs of several replicas hold: tensors to join, and the rest.

The first replica's output says what is expected of the others.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._nested import (
    FieldsBranch,
    IterableBranch,
    Leaf,
    ListBranch,
    MappingBranch,
    NamedTupleBranch,
    Node,
    Same,
    Trail,
    TupleBranch,
    field_names,
    is_dataclass_instance,
    is_named_tuple,
    write_trail,
)

__all__ = ["Joined", "Outputs"]

#: Iterable, but one value and no container of outputs.
_ONE_VALUE = (
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


#: What must stand in a place of all replicas' outputs or of none.
_ALIKE: dict[type, str] = {
    type(None): "None",
    Tensor: "a tensor",
    PackedSequence: "a packed sequence",
}


class Joined(Leaf):
    """Tensors, one of each replica, that become one; or the rows of packed sequences."""

    __slots__ = ("packed", "tensors")

    def __init__(self, tensors: Sequence[Tensor], packed: Sequence[PackedSequence] = ()) -> None:
        super().__init__()
        self.tensors = tensors
        self.packed = packed


class _MadeBranch(NamedTupleBranch):
    """A named tuple that is built past its class's constructor."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)._make(parts)


class Outputs:
    """The leaves of replicas' outputs that are to be joined.

    Attributes:
        joined: These leaves.
    """

    __slots__ = ("joined",)

    def __init__(self) -> None:
        self.joined: list[Joined] = []

    def take(self, values: Sequence[Any], trail: Trail) -> Node:
        """Take what the replicas returned for one place apart.

        Args:
            values: One value of each replica, at least one.
            trail: The way to this place.

        Raises:
            ValueError: Some values are None, or tensors, and others are not; dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key that the first replica's has.
        """
        _check_alike(values, trail)
        take = _TAKE.get(type(values[0])) or _take_like(values)
        return take(self, values, trail)

    def _tensors(self, values: Sequence[Tensor], trail: Trail) -> Node:
        return self._join(Joined(values))

    def _packed(self, values: Sequence[PackedSequence], trail: Trail) -> Node:
        return self._join(Joined([value.data for value in values], values))

    def _join(self, joined: Joined) -> Node:
        self.joined.append(joined)
        return joined

    def _none(self, values: Sequence[None], trail: Trail) -> Node:
        return Same(None)

    def _values(self, values: Sequence[Any], trail: Trail) -> Node:
        """Keep all of them, in the order of the replicas."""
        return Same(list(values))

    def _iterable(self, values: Sequence[Any], trail: Trail) -> Node:
        return IterableBranch(values[0], self._items(values, trail))

    def _tuple(self, values: Sequence[Any], trail: Trail) -> Node:
        return TupleBranch(values[0], self._items(values, trail))

    def _list(self, values: Sequence[Any], trail: Trail) -> Node:
        return ListBranch(values[0], self._items(values, trail))

    def _items(self, values: Sequence[Any], trail: Trail) -> list[Node]:
        rows = zip(*values, strict=True)
        return [
            self.take(row, (trail, IterableBranch.spelling, at)) for at, row in enumerate(rows)
        ]

    def _named_tuple(self, values: Sequence[Any], trail: Trail) -> Node:
        rows = zip(values[0]._fields, zip(*values, strict=True), strict=True)
        spelling = NamedTupleBranch.spelling
        parts = [self.take(row, (trail, spelling, name)) for name, row in rows]
        return _MadeBranch(values[0], parts)

    def _mapping(self, values: Sequence[Mapping[Any, Any]], trail: Trail) -> Node:
        if len({len(value) for value in values}) > 1:
            raise ValueError("All dicts must have the same number of keys")
        parts = [
            self.take([value[key] for value in values], (trail, MappingBranch.spelling, key))
            for key in values[0].keys()  # noqa: SIM118 - iteration may be overridden
        ]
        return MappingBranch(values[0], parts)

    def _fields(self, values: Sequence[Any], trail: Trail) -> Node:
        parts = [
            self.take(
                [getattr(value, name) for value in values], (trail, FieldsBranch.spelling, name)
            )
            for name in field_names(values[0])
        ]
        return FieldsBranch(values[0], parts)


_Take = Callable[[Outputs, Sequence[Any], Trail], Node]

#: By exact type, since a chain of `isinstance` for every leaf is what costs most.
_TAKE: dict[type, _Take] = {
    Tensor: Outputs._tensors,
    tuple: Outputs._tuple,
    list: Outputs._list,
    dict: Outputs._mapping,
    PackedSequence: Outputs._packed,
    type(None): Outputs._none,
    **dict.fromkeys([bool, int, float, complex, str, bytes], Outputs._values),
}


def _take_like(values: Sequence[Any]) -> _Take:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _TAKE[kind]
    if isinstance(first, Mapping):
        return Outputs._mapping
    if is_named_tuple(first):
        return Outputs._named_tuple
    if _is_one_value(first) or _are_unordered(values):
        return Outputs._values
    return Outputs._fields if is_dataclass_instance(first) else Outputs._iterable


def _is_one_value(value: Any) -> bool:
    if isinstance(value, _ONE_VALUE) or hasattr(value, "__array__"):
        return True
    is_sequence = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return not (is_sequence or hasattr(value, "__iter__") or is_dataclass_instance(value))


def _are_unordered(values: Sequence[Any]) -> bool:
    """Tell whether these are sets of other things than tensors, whose members have no order."""
    return all(isinstance(value, set | frozenset) for value in values) and not all(
        isinstance(member, Tensor) for value in values for member in value
    )


def _check_alike(values: Sequence[Any], trail: Trail) -> None:
    """Refuse None, tensors or packed sequences of some replicas beside other things."""
    if len(set(map(type, values))) == 1:
        return
    for kind, what in _ALIKE.items():
        verdicts = [isinstance(value, kind) for value in values]
        if len(set(verdicts)) > 1:
            raise ValueError(_odd_ones(what, verdicts, trail))


def _odd_ones(what: str, verdicts: Sequence[bool], trail: Trail) -> str:
    ones, others = (
        [replica for replica, verdict in enumerate(verdicts) if verdict is side]
        for side in (True, False)
    )
    return f"{write_trail(trail)} is {what} in replicas {ones}, but not in replicas {others}"
