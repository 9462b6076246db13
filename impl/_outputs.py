"""Flattening of the nested outputs of several replicas. Leaves are tensors to gather.

The output of the first replica determines the structure.
"""

import enum
import traceback
from collections import UserString
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._containers import (
    BRANCHES,
    MEMORY_ERRORS,
    Branch,
    Constant,
    FieldsBranch,
    KeyPath,
    Leaf,
    MappingBranch,
    NamedTupleBranch,
    Node,
    RegisteredBranch,
    format_path,
    is_dataclass_instance,
    is_named_tuple,
    is_registered,
    is_tensor_dict,
)
from ._torch_private import pytree_node
from ._warnings import warn_caller

#: Types, most of them iterable, that are not treated as containers.
_SINGLE_VALUES = (
    *(str, UserString, bytes, bytearray, memoryview, range, torch.Size),
    *(enum.Enum, nn.Module, type, Iterator),
)

#: If a part of the outputs has one of these types in one replica, it must have it in all replicas.
#: The values are the names of the types in error messages.
_UNIFORM_TYPES: dict[type, str] = {
    type(None): "None",
    Tensor: "a tensor",
    PackedSequence: "a packed sequence",
}


@dataclass(slots=True, eq=False)
class GatheredLeaf(Leaf):
    """Tensors, one from each replica, that are gathered into one."""

    tensors: Sequence[Any]  # Tensors, TensorDicts, or the data of packed sequences.
    packed_sequences: Sequence[PackedSequence] = ()


class _MakeNamedTupleBranch(NamedTupleBranch):
    """The node of a named tuple. ``build`` calls ``_make``, and not the class's constructor."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)._make(parts)


class _IterableBranch(Branch):
    """The node of an iterable of another class, to which ``build`` passes a tuple of the parts."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)(parts)


class OutputLeaves:
    """The leaves of flattened outputs."""

    __slots__ = ("gathered",)

    def __init__(self) -> None:
        self.gathered: list[GatheredLeaf] = []

    def flatten(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Flatten the values of all replicas together, and add their leaves to this object.

        Raises:
            ValueError: Some values are None or tensors, and others are not; or dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key of the first replica's dictionary.
            RecursionError: Values are nested deeper than the recursion limit.
        """
        _check_uniform(values, path)
        handler = _HANDLERS.get(type(values[0])) or _find_handler(values)
        return handler(self, values, path)

    def _flatten_container(self, values: Sequence[Any], path: KeyPath) -> Branch:
        # Use one stack frame per level, as in `InputLeaves`.
        branch = _find_branch(values[0])
        children: list[Node] = []
        for step, row in branch.rows(values):
            part = (path, branch.step_format, step)
            _check_uniform(row, part)
            handler = _HANDLERS.get(type(row[0])) or _find_handler(row)
            children.append(handler(self, row, part))
        return branch(values[0], children)

    def _flatten_iterable(self, values: Sequence[Any], path: KeyPath) -> Node:
        try:
            members = [list(value) for value in values]
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return Constant(_warn_not_gathered(values, "be iterated over", error))
        children = self._flatten_container(members, path).children
        refuse = partial(_warn_not_gathered, values, "be built from joined parts")
        return _IterableBranch(values[0], children, refuse)

    def _flatten_registered(self, values: Sequence[Any], path: KeyPath) -> Node:
        try:
            _check_same_context(values)
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return Constant(_warn_not_gathered(values, "be gathered", error))
        members = [[part for _, part in RegisteredBranch.items(value)] for value in values]
        children = self._flatten_container(members, path).children
        refuse = partial(_warn_not_gathered, values, "be unflattened")
        return RegisteredBranch(values[0], children, refuse)

    def _flatten_tensors(self, values: Sequence[Tensor], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf(tuple(values)))

    def _flatten_packed(self, values: Sequence[PackedSequence], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf([value.data for value in values], values))

    def _add_leaf(self, leaf: GatheredLeaf) -> Node:
        self.gathered.append(leaf)
        return leaf

    def _flatten_values(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Return a constant: the list of the values that are not gathered."""
        return Constant(list(values))


_Handler = Callable[[OutputLeaves, Sequence[Any], KeyPath], Node]

#: For each exact type of output: the method of `OutputLeaves` that flattens it.
_HANDLERS: dict[type, _Handler] = {
    Tensor: OutputLeaves._flatten_tensors,
    tuple: OutputLeaves._flatten_container,
    list: OutputLeaves._flatten_container,
    dict: OutputLeaves._flatten_container,
    PackedSequence: OutputLeaves._flatten_packed,
    type(None): lambda leaves, values, path: Constant(None),
    **dict.fromkeys([bool, int, float, complex, str, bytes], OutputLeaves._flatten_values),
}


def _find_handler(values: Sequence[Any]) -> _Handler:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _HANDLERS[kind]
    if all(map(is_tensor_dict, values)) and first.batch_size:
        return OutputLeaves._flatten_tensors
    if is_registered(first) or (is_tensor_dict(first) and not isinstance(first, Mapping)):
        return OutputLeaves._flatten_registered
    if isinstance(first, Mapping) or is_named_tuple(first):
        return OutputLeaves._flatten_container
    if _is_single_value(first) or _are_unordered(values):
        return OutputLeaves._flatten_values
    if is_dataclass_instance(first):
        return OutputLeaves._flatten_container
    return OutputLeaves._flatten_iterable


def _find_branch(first: Any) -> type[Branch]:
    if type(first) in BRANCHES:
        return BRANCHES[type(first)]
    if isinstance(first, Mapping):
        return MappingBranch
    return _MakeNamedTupleBranch if is_named_tuple(first) else FieldsBranch


def _is_single_value(value: Any) -> bool:
    """Return whether ``value`` is gathered as one value, not as a container."""
    if isinstance(value, _SINGLE_VALUES) or hasattr(value, "__array__"):
        return True
    is_sequence = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return not (is_sequence or hasattr(value, "__iter__") or is_dataclass_instance(value))


def _are_unordered(values: Sequence[Any]) -> bool:
    """Return whether ``values`` are sets that do not all contain only tensors.

    Equal members of two sets may be in different orders, so sets are not gathered. Only sets of
    tensors are gathered, as in torch.nn.parallel.
    """
    return all(isinstance(value, set | frozenset) for value in values) and not all(
        isinstance(member, Tensor) for value in values for member in value
    )


def _check_same_context(values: Sequence[Any]) -> None:
    """Raise ValueError if registered objects differ in class, context or number of parts."""
    flat = [pytree_node(type(value)).flatten_fn(value) for value in values]
    for index, (value, (parts, context)) in enumerate(zip(values, flat, strict=True)):
        if type(value) is not type(values[0]):
            raise ValueError(f"replica {index} returned a {type(value).__name__}")
        if len(parts) != len(flat[0][0]):
            raise ValueError(f"it has {len(parts)} parts in replica {index}")
        if context is not flat[0][1] and context != flat[0][1]:
            raise ValueError(f"its context differs in replica {index}")


def _check_uniform(values: Sequence[Any], path: KeyPath) -> None:
    """Raise ValueError if None, a tensor or a packed sequence is in some replicas only."""
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


def _warn_not_gathered(values: Sequence[Any], verb: str, error: Exception) -> list[Any]:
    """Warn of values that are not gathered. Return the list of the values of all replicas."""
    name = type(values[0]).__name__
    # Unlike `str(error)`, `format_exception_only` never raises an error.
    reason = traceback.format_exception_only(error)[-1].strip()
    warn_caller(
        f"{name} among the outputs cannot {verb} ({reason}), so those of all replicas are listed"
    )
    return list(values)
