"""What nested outputs of several replicas hold: tensors to join, and the rest.

The first replica's output says what is expected of the others.
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
    FieldsBranch,
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
from .traversal import Level, descend

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


#: What a part must be in the outputs of all replicas or of none.
_ALIKE: dict[type, str] = {
    type(None): "None",
    Tensor: "a tensor",
    PackedSequence: "a packed sequence",
}


class Joined(Leaf):
    """Tensors, one of each replica, that become one; or the rows of packed sequences."""

    __slots__ = ("packed", "tensors")

    def __init__(self, tensors: Sequence[Tensor], packed: Sequence[PackedSequence] = ()) -> None:
        self.tensors = tensors
        self.packed = packed


class _MadeBranch(NamedTupleBranch):
    """A named tuple that is built past its class's constructor."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)._make(parts)


#: What says nothing of the class that fails.
_NO_MEMORY = (MemoryError, torch.OutOfMemoryError)


class _IterableBranch(Branch):
    """Other iterables, whose class is called with one iterable of parts to build one of them.

    Args:
        template: Those of all replicas. They are kept where their class refuses.
        children: Nodes of the parts.
    """

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        try:
            return type(self.template[0])(parts)
        except _NO_MEMORY:
            raise
        except Exception as error:
            _warn_of_kept(self.template, "be built from joined parts", error)
            return list(self.template)


class Outputs:
    """The leaves of replicas' outputs that are to be joined.

    Attributes:
        joined: These leaves.
    """

    __slots__ = ("joined",)

    def __init__(self) -> None:
        self.joined: list[Joined] = []

    def take(self, values: Sequence[Any], trail: Trail) -> Node:
        """Take what the replicas returned as one part of their outputs apart.

        Args:
            values: One value of each replica, at least one.
            trail: The way to this part.

        Raises:
            ValueError: Some values are None, or tensors, and others are not; dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key that the first replica's has.
            RecursionError: Values are nested deeper than the recursion limit.
        """
        nodes: list[Node] = []
        descend(self._visit(values, trail, nodes))
        return nodes[0]

    def _level(
        self,
        branch: type[Branch],
        values: Sequence[Any],
        steps: Iterable[tuple[Any, Sequence[Any]]],
        trail: Trail,
        nodes: list[Node],
    ) -> Level:
        """Take the parts of ``values`` apart, then append their node to ``nodes``."""
        parts: list[Node] = []
        for step, row in steps:
            below = self._visit(row, (trail, branch.spelling, step), parts)
            if below is not None:
                yield below
        nodes.append(branch(values[0], parts))

    def _visit(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> Level | None:
        """Append the node of ``values`` to ``nodes``, at once or at the end of their level."""
        _check_alike(values, trail)
        take = _TAKE.get(type(values[0])) or _find_take(values)
        return take(self, values, trail, nodes)

    def _take_tensors(self, values: Sequence[Tensor], trail: Trail, nodes: list[Node]) -> None:
        self._join(Joined(values), nodes)

    def _take_packed(
        self, values: Sequence[PackedSequence], trail: Trail, nodes: list[Node]
    ) -> None:
        self._join(Joined([value.data for value in values], values), nodes)

    def _join(self, joined: Joined, nodes: list[Node]) -> None:
        self.joined.append(joined)
        nodes.append(joined)

    def _take_none(self, values: Sequence[None], trail: Trail, nodes: list[Node]) -> None:
        nodes.append(Same(None))

    def _take_values(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> None:
        """Keep all of them, in the order of the replicas."""
        nodes.append(Same(list(values)))

    def _take_iterable(
        self, values: Sequence[Any], trail: Trail, nodes: list[Node]
    ) -> Level | None:
        try:
            members = [list(value) for value in values]
        except _NO_MEMORY:
            raise
        except Exception as error:
            _warn_of_kept(values, "be iterated over", error)
            self._take_values(values, trail, nodes)
            return None
        return self._level(_IterableBranch, [values], _members(members), trail, nodes)

    def _take_tuple(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> Level:
        return self._level(TupleBranch, values, _members(values), trail, nodes)

    def _take_list(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> Level:
        return self._level(ListBranch, values, _members(values), trail, nodes)

    def _take_named_tuple(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> Level:
        fields = zip(values[0]._fields, zip(*values, strict=True), strict=True)
        return self._level(_MadeBranch, values, fields, trail, nodes)

    def _take_mapping(
        self, values: Sequence[Mapping[Any, Any]], trail: Trail, nodes: list[Node]
    ) -> Level:
        if len({len(value) for value in values}) > 1:
            raise ValueError("All dicts must have the same number of keys")
        keys = values[0].keys()
        items = ((key, [value[key] for value in values]) for key in keys)
        return self._level(MappingBranch, values, items, trail, nodes)

    def _take_fields(self, values: Sequence[Any], trail: Trail, nodes: list[Node]) -> Level:
        names = field_names(values[0])
        fields = ((name, [getattr(value, name) for value in values]) for name in names)
        return self._level(FieldsBranch, values, fields, trail, nodes)


def _members(values: Sequence[Any]) -> Iterable[tuple[int, Sequence[Any]]]:
    return enumerate(zip(*values, strict=True))


_Take = Callable[[Outputs, Sequence[Any], Trail, list[Node]], Level | None]

#: By exact type, since a chain of `isinstance` for every leaf is what costs most.
_TAKE: dict[type, _Take] = {
    Tensor: Outputs._take_tensors,
    tuple: Outputs._take_tuple,
    list: Outputs._take_list,
    dict: Outputs._take_mapping,
    PackedSequence: Outputs._take_packed,
    type(None): Outputs._take_none,
    **dict.fromkeys([bool, int, float, complex, str, bytes], Outputs._take_values),
}


def _find_take(values: Sequence[Any]) -> _Take:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _TAKE[kind]
    if isinstance(first, Mapping):
        return Outputs._take_mapping
    if is_named_tuple(first):
        return Outputs._take_named_tuple
    if _is_one_value(first) or _are_unordered(values):
        return Outputs._take_values
    return Outputs._take_fields if is_dataclass_instance(first) else Outputs._take_iterable


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


def _warn_of_kept(values: Sequence[Any], what: str, error: Exception) -> None:
    name = type(values[0]).__name__
    # Unlike `str(error)`, it never raises.
    reason = traceback.format_exception_only(error)[-1].strip()
    warnings.warn(
        f"{name} among the outputs cannot {what} ({reason}), so those of all replicas are listed",
        UserWarning,
        stacklevel=2,
    )


def _odd_ones(what: str, verdicts: Sequence[bool], trail: Trail) -> str:
    ones, others = (
        [replica for replica, verdict in enumerate(verdicts) if verdict is side]
        for side in (True, False)
    )
    return f"{write_trail(trail)} is {what} in replicas {ones}, but not in replicas {others}"
