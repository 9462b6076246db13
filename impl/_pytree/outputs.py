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
from .traversal import Level, traverse

__all__ = ["GatheredLeaf", "OutputLeaves"]

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


class GatheredLeaf(Leaf):
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


class OutputLeaves:
    """The leaves of replicas' outputs that are to be joined.

    Attributes:
        joined: These leaves.
    """

    __slots__ = ("gathered",)

    def __init__(self) -> None:
        self.gathered: list[GatheredLeaf] = []

    def flatten(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Take what the replicas returned as one part of their outputs apart.

        Args:
            values: One value of each replica, at least one.
            path: The way to this part.

        Raises:
            ValueError: Some values are None, or tensors, and others are not; dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key that the first replica's has.
            RecursionError: Values are nested deeper than the recursion limit.
        """
        nodes: list[Node] = []
        traverse(self._visit(values, path, nodes))
        return nodes[0]

    def _level(
        self,
        branch: type[Branch],
        values: Sequence[Any],
        steps: Iterable[tuple[Any, Sequence[Any]]],
        path: KeyPath,
        nodes: list[Node],
    ) -> Level:
        """Take the parts of ``values`` apart, then append their node to ``nodes``."""
        parts: list[Node] = []
        for step, row in steps:
            below = self._visit(row, (path, branch.spelling, step), parts)
            if below is not None:
                yield below
        nodes.append(branch(values[0], parts))

    def _visit(self, values: Sequence[Any], path: KeyPath, nodes: list[Node]) -> Level | None:
        """Append the node of ``values`` to ``nodes``, at once or at the end of their level."""
        _check_alike(values, path)
        handler = _HANDLERS.get(type(values[0])) or _find_handler(values)
        return handler(self, values, path, nodes)

    def _flatten_tensors(self, values: Sequence[Tensor], path: KeyPath, nodes: list[Node]) -> None:
        self._join(GatheredLeaf(values), nodes)

    def _flatten_packed(
        self, values: Sequence[PackedSequence], path: KeyPath, nodes: list[Node]
    ) -> None:
        self._join(GatheredLeaf([value.data for value in values], values), nodes)

    def _join(self, joined: GatheredLeaf, nodes: list[Node]) -> None:
        self.gathered.append(joined)
        nodes.append(joined)

    def _flatten_none(self, values: Sequence[None], path: KeyPath, nodes: list[Node]) -> None:
        nodes.append(Constant(None))

    def _flatten_values(self, values: Sequence[Any], path: KeyPath, nodes: list[Node]) -> None:
        """Keep all of them, in the order of the replicas."""
        nodes.append(Constant(list(values)))

    def _flatten_iterable(
        self, values: Sequence[Any], path: KeyPath, nodes: list[Node]
    ) -> Level | None:
        try:
            members = [list(value) for value in values]
        except _NO_MEMORY:
            raise
        except Exception as error:
            _warn_of_kept(values, "be iterated over", error)
            self._flatten_values(values, path, nodes)
            return None
        return self._level(_IterableBranch, [values], _members(members), path, nodes)

    def _flatten_tuple(self, values: Sequence[Any], path: KeyPath, nodes: list[Node]) -> Level:
        return self._level(TupleBranch, values, _members(values), path, nodes)

    def _flatten_list(self, values: Sequence[Any], path: KeyPath, nodes: list[Node]) -> Level:
        return self._level(ListBranch, values, _members(values), path, nodes)

    def _flatten_named_tuple(
        self, values: Sequence[Any], path: KeyPath, nodes: list[Node]
    ) -> Level:
        fields = zip(values[0]._fields, zip(*values, strict=True), strict=True)
        return self._level(_MadeBranch, values, fields, path, nodes)

    def _flatten_mapping(
        self, values: Sequence[Mapping[Any, Any]], path: KeyPath, nodes: list[Node]
    ) -> Level:
        if len({len(value) for value in values}) > 1:
            raise ValueError("All dicts must have the same number of keys")
        keys = values[0].keys()
        items = ((key, [value[key] for value in values]) for key in keys)
        return self._level(MappingBranch, values, items, path, nodes)

    def _flatten_fields(self, values: Sequence[Any], path: KeyPath, nodes: list[Node]) -> Level:
        names = field_names(values[0])
        fields = ((name, [getattr(value, name) for value in values]) for name in names)
        return self._level(FieldsBranch, values, fields, path, nodes)


def _members(values: Sequence[Any]) -> Iterable[tuple[int, Sequence[Any]]]:
    return enumerate(zip(*values, strict=True))


_Handler = Callable[[OutputLeaves, Sequence[Any], KeyPath, list[Node]], Level | None]

#: By exact type, since a chain of `isinstance` for every leaf is what costs most.
_HANDLERS: dict[type, _Handler] = {
    Tensor: OutputLeaves._flatten_tensors,
    tuple: OutputLeaves._flatten_tuple,
    list: OutputLeaves._flatten_list,
    dict: OutputLeaves._flatten_mapping,
    PackedSequence: OutputLeaves._flatten_packed,
    type(None): OutputLeaves._flatten_none,
    **dict.fromkeys([bool, int, float, complex, str, bytes], OutputLeaves._flatten_values),
}


def _find_handler(values: Sequence[Any]) -> _Handler:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _HANDLERS[kind]
    if isinstance(first, Mapping):
        return OutputLeaves._flatten_mapping
    if is_named_tuple(first):
        return OutputLeaves._flatten_named_tuple
    if _is_one_value(first) or _are_unordered(values):
        return OutputLeaves._flatten_values
    return (
        OutputLeaves._flatten_fields
        if is_dataclass_instance(first)
        else OutputLeaves._flatten_iterable
    )


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


def _check_alike(values: Sequence[Any], path: KeyPath) -> None:
    """Refuse None, tensors or packed sequences of some replicas beside other things."""
    if len(set(map(type, values))) == 1:
        return
    for kind, what in _ALIKE.items():
        verdicts = [isinstance(value, kind) for value in values]
        if len(set(verdicts)) > 1:
            raise ValueError(_odd_ones(what, verdicts, path))


def _warn_of_kept(values: Sequence[Any], what: str, error: Exception) -> None:
    name = type(values[0]).__name__
    # Unlike `str(error)`, it never raises.
    reason = traceback.format_exception_only(error)[-1].strip()
    warnings.warn(
        f"{name} among the outputs cannot {what} ({reason}), so those of all replicas are listed",
        UserWarning,
        stacklevel=2,
    )


def _odd_ones(what: str, verdicts: Sequence[bool], path: KeyPath) -> str:
    ones, others = (
        [replica for replica, verdict in enumerate(verdicts) if verdict is side]
        for side in (True, False)
    )
    return f"{format_path(path)} is {what} in replicas {ones}, but not in replicas {others}"
