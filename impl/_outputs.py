"""Flattening of the nested outputs of several replicas. Leaves are tensors to gather.

The output of the first replica determines the structure.
"""

import enum
import traceback
from collections import UserList, UserString, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._attributes import MEMORY_ERRORS, Recipe, empty_recipe, find_difference, is_same
from ._containers import (
    BRANCHES,
    Branch,
    Constant,
    FieldsBranch,
    KeyPath,
    Leaf,
    NamedTupleBranch,
    Node,
    RegisteredBranch,
    SequenceBranch,
    format_path,
    is_dataclass_instance,
    is_named_tuple,
    is_registered,
    is_tensor_dict,
    recipe_of,
)
from ._inputs import find_tensors
from ._model_outputs import CacheBranch, find_mapping_branch, row_dims
from ._packed_sequences import count_sequences
from ._torch_private import pytree_node
from ._tracing import CONSTANTS
from ._warnings import warn_caller

#: Types, most of them iterable, that are not treated as containers.
_NO_CONTAINERS = (
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

    def sizes(self, dim: int) -> Sequence[int]:
        """Return the size of each tensor along ``dim``, or none if one does not have it.

        The rows of a packed sequence are its sequences.
        """
        if self.packed_sequences:
            return tuple(map(count_sequences, self.packed_sequences))
        try:
            return tuple([tensor.size(dim) for tensor in self.tensors])
        except (AttributeError, IndexError, RuntimeError):
            return ()


class _MakeNamedTupleBranch(NamedTupleBranch):
    """The node of a named tuple. ``build`` calls ``_make``, and not the class's constructor."""

    __slots__ = ()
    calls = (*NamedTupleBranch.calls, lambda kind, keys, parts: kind._make(parts))

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)._make(parts)


class _IterableBranch(SequenceBranch):
    """The node of an iterable of another class, to which ``build`` passes a tuple of the parts."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        if isinstance(self.template, list | tuple | deque | UserList):
            return SequenceBranch.build(self, parts)
        return type(self.template)(parts)


class _Listed(Constant):
    """The node of values that are not gathered: a list of those of all replicas."""

    __slots__ = ()


class OutputLeaves:
    """The leaves of flattened outputs, which are joined along a dimension."""

    __slots__ = (
        *("_attribute_depth", "_dim", "_is_in_cache", "_module", "_open"),
        *("attributes", "gathered", "lists"),
    )

    def __init__(self, dim: int, module: nn.Module | None) -> None:
        self._dim, self._module = dim, module  # The module that has returned the outputs.
        self.gathered: list[GatheredLeaf] = []
        self.attributes: list[GatheredLeaf] = []  # The leaves in attributes of containers.
        self._attribute_depth = 0  # The number of attributes that contain the part.
        #: Lists and tuples of tensors of all replicas, with their nodes; see `append_rows`.
        self.lists: list[tuple[Branch, Sequence[Sequence[Any]], KeyPath]] = []
        self._is_in_cache = False  # Whether a cache of a model contains the part.
        # The ids of the containers of the first replica with attributes, or in an attribute, that
        # contain the part that is being flattened.
        self._open: set[int] = set()

    def flatten(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Flatten the values of all replicas together, and add their leaves to this object.

        Raises:
            ValueError: Some values are None or tensors, and others are not; or dictionaries or
                sequences differ in length.
            KeyError: A dictionary lacks a key of the first replica's dictionary.
            RecursionError: Values are nested deeper than the recursion limit.
        """
        _check_uniform(values, path)
        handler = _OUTPUT_HANDLERS.get(type(values[0])) or _output_handler(values)
        return handler(self, values, path)

    def _flatten_container(self, values: Sequence[Any], path: KeyPath) -> Node:
        # Use one stack frame per level, as in `InputLeaves`.
        if self._attribute_depth:
            if id(values[0]) in self._open:
                return Constant(values[0])  # The attribute refers to a container that contains it.
            self._open.add(id(values[0]))
        branch, recipes = BRANCHES.get(type(values[0])), None
        if branch is None:
            branch = self._output_branch(values)
            recipes = _find_recipes(values, branch)
        elif not (self._attribute_depth or self._is_in_cache) and _are_ragged(values):
            self.lists.append((branch(values[0], []), values, path))
            return self.lists[-1][0]
        children: list[Node] = []
        for step, members in branch.items_of_all(values):
            part = (path, branch.step_format, step)
            _check_uniform(members, part)
            handler = _OUTPUT_HANDLERS.get(type(members[0])) or _output_handler(members)
            children.append(handler(self, members, part))
        if recipes is not None:
            children += self._flatten_attributes(values[0], recipes, children, path)
        if self._attribute_depth:
            self._open.discard(id(values[0]))
        node = branch(values[0], children, recipe=recipes[0] if recipes else None)
        if type(values[0]) in (list, tuple) and set(map(type, children)) == {GatheredLeaf}:
            self.lists.append((node, values, path))
        return node

    def _output_branch(self, values: Sequence[Any]) -> type[Branch]:
        if isinstance(values[0], Mapping):
            return find_mapping_branch(values, self._dim, self._module)
        return _MakeNamedTupleBranch if is_named_tuple(values[0]) else FieldsBranch

    def append_rows(self, dim: int) -> None:
        """Append lists, or tuples, of one tensor for each row, instead of joining their tensors.

        The length of a list is the number of rows of its replica, and no tensor in it has this
        size along ``dim``. Other lists must not differ in length.
        """
        members: set[int] = set()
        for node, _, _ in self.lists:
            members.update(map(id, node.children))
        rows: Sequence[int] = ()
        for leaf in self.gathered:
            if id(leaf) not in members and (rows := leaf.sizes(dim)):
                break
        for node, values, path in self.lists:
            lengths = tuple(map(len, values))
            if lengths == rows and not any(map(partial(_has_rows, dim=dim), values)):
                joined = set(map(id, node.children))
                self.gathered = [leaf for leaf in self.gathered if id(leaf) not in joined]
                leaves = [GatheredLeaf([each]) for value in values for each in value]
                node.children = leaves
                self.gathered += leaves
            else:
                _check_lengths(values, path)

    def _flatten_members(self, members: Sequence[Sequence[Any]], path: KeyPath) -> list[Node]:
        """Flatten the members of objects that are no lists, and return their nodes."""
        _check_lengths(members, path)
        node: Any = self._flatten_container(members, path)
        self.lists = [each for each in self.lists if each[0] is not node]
        return [*node.children]

    def _flatten_attributes(
        self, first: Any, recipes: Sequence[Recipe], parts: Sequence[Node], path: KeyPath
    ) -> list[Node]:
        """Return the nodes of the carried attributes. Write their names to the first recipe."""
        if any(map(_has_list, parts)):
            for recipe in recipes:
                recipe.call, recipe.carried = None, [*recipe.attributes]
        names = dict.fromkeys(name for recipe in recipes for name in recipe.carried)
        attributes = {name: [each.attributes.get(name) for each in recipes] for name in names}
        items = zip(*(recipe.parts for recipe in recipes), strict=True)
        known = {tuple(map(id, members)): node for members, node in zip(items, parts, strict=True)}
        is_open = id(first) in self._open
        self._open.add(id(first))
        nodes = {}
        for name, values in attributes.items():
            node = known.get(tuple(map(id, values)))
            # An attribute that holds an item has its name. Small integers are the same by chance.
            if node is None or (type(values[0]) in CONSTANTS and name not in recipes[0].keys):
                node = self._flatten_attribute(values, (path, ".{}", name))
            if name in recipes[0].attributes or not isinstance(node, Constant):
                nodes[name] = node
        if not is_open:
            self._open.discard(id(first))
        recipes[0].carried = [*nodes]
        return [*nodes.values()]

    def _flatten_attribute(self, row: Sequence[Any], path: KeyPath) -> Node:
        """Flatten an attribute of all replicas. Without tensors it is that of the first one."""
        is_shared = len(row) > 1 and all(value is row[0] for value in row)
        if is_shared or not find_tensors(list(row), "attributes"):
            return Constant(row[0])
        counts, opened = self._counts(), self._open.copy()
        self._attribute_depth += 1
        try:
            return self.flatten(row, path)
        except RecursionError:
            self._undo(counts)
            self._open = opened
            return Constant(row[0])
        finally:
            self._attribute_depth -= 1

    def _counts(self) -> tuple[int, int, int]:
        return len(self.gathered), len(self.attributes), len(self.lists)

    def _undo(self, counts: tuple[int, int, int]) -> None:
        """Remove what was added after ``counts``."""
        del self.gathered[counts[0] :], self.attributes[counts[1] :], self.lists[counts[2] :]

    def _flatten_iterable(self, values: Sequence[Any], path: KeyPath) -> Node:
        try:
            members = [list(value) for value in values]
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return Constant(_warn_not_gathered(values, "be iterated over", error))
        refuse = partial(_warn_not_gathered, values, "be built from joined parts")
        recipes = None
        if isinstance(values[0], list | tuple | deque | UserList):
            recipes = _find_recipes(values, _IterableBranch)
        else:
            try:
                _check_rebuilt(values[0], members[0])
            except MEMORY_ERRORS:
                raise
            except Exception as error:
                return Constant(refuse(error))
        children = self._flatten_members(members, path)
        if recipes is not None:
            children += self._flatten_attributes(values[0], recipes, children, path)
        return _IterableBranch(values[0], children, refuse, recipes[0] if recipes else None)

    def _flatten_cache(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Flatten caches, or layers of caches. If they cannot be joined whole, list the caches."""
        counts, is_outermost = self._counts(), not self._is_in_cache
        self._is_in_cache = True
        try:
            if self._dim != 0:
                raise ValueError(f"caches are joined along dim 0 only, not along dim {self._dim}")
            children = [
                self.flatten(members, (path, CacheBranch.step_format, name))
                for name, members in CacheBranch.items_of_all(values)
            ]
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            if not is_outermost:
                raise
            self._undo(counts)
            return Constant(_warn_not_gathered(values, "be joined", error))
        finally:
            self._is_in_cache = not is_outermost
        return CacheBranch(values[0], children)

    def _flatten_registered(self, values: Sequence[Any], path: KeyPath) -> Node:
        try:
            _check_same_context(values)
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return Constant(_warn_not_gathered(values, "be gathered", error))
        members = [[part for _, part in RegisteredBranch.items(value)] for value in values]
        children = self._flatten_members(members, path)
        refuse = partial(_warn_not_gathered, values, "be unflattened")
        return RegisteredBranch(values[0], children, refuse)

    def _flatten_tensors(self, values: Sequence[Tensor], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf(tuple(values)))

    def _flatten_packed(self, values: Sequence[PackedSequence], path: KeyPath) -> Node:
        return self._add_leaf(GatheredLeaf([value.data for value in values], values))

    def _add_leaf(self, leaf: GatheredLeaf) -> Node:
        (self.attributes if self._attribute_depth else self.gathered).append(leaf)
        return leaf

    def _flatten_sets(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Flatten sets of one tensor. Other members have no order, so the sets are listed."""
        members = [member for value in values for member in value]
        if not any(isinstance(member, Tensor) for member in members):
            return self._flatten_values(values, path)
        if len(members) == len(values) and all(isinstance(each, Tensor) for each in members):
            return self._flatten_iterable(values, path)
        error = ValueError("the members of a set have no order")
        return Constant(_warn_not_gathered(values, "be joined", error))

    def _flatten_values(self, values: Sequence[Any], path: KeyPath) -> Node:
        """Return a constant: the list of the values that are not gathered."""
        return _Listed(list(values))


_Handler = Callable[[OutputLeaves, Sequence[Any], KeyPath], Node]

#: For each exact type of output: the method of `OutputLeaves` that flattens it.
_OUTPUT_HANDLERS: dict[type, _Handler] = {
    Tensor: OutputLeaves._flatten_tensors,
    tuple: OutputLeaves._flatten_container,
    list: OutputLeaves._flatten_container,
    dict: OutputLeaves._flatten_container,
    PackedSequence: OutputLeaves._flatten_packed,
    type(None): lambda leaves, values, path: Constant(None),
    **dict.fromkeys([bool, int, float, complex, str, bytes], OutputLeaves._flatten_values),
}


def _output_handler(values: Sequence[Any]) -> _Handler:
    first = values[0]
    for kind in (Tensor, PackedSequence):
        if isinstance(first, kind):
            return _OUTPUT_HANDLERS[kind]
    if all(map(is_tensor_dict, values)) and first.batch_size:
        return OutputLeaves._flatten_tensors
    if row_dims(first):
        return OutputLeaves._flatten_cache
    if is_registered(first) or (is_tensor_dict(first) and not isinstance(first, Mapping)):
        return OutputLeaves._flatten_registered
    if isinstance(first, Mapping) or is_named_tuple(first):
        return OutputLeaves._flatten_container
    if all(isinstance(value, set | frozenset) for value in values):
        return OutputLeaves._flatten_sets
    if _is_single_value(first):
        return OutputLeaves._flatten_values
    if is_dataclass_instance(first):
        return OutputLeaves._flatten_container
    return OutputLeaves._flatten_iterable


def _has_list(node: Node) -> bool:
    """Return whether plain values in ``node`` become a list, or scalars a vector."""
    if isinstance(node, GatheredLeaf):
        return all(isinstance(each, Tensor) and each.dim() == 0 for each in node.tensors)
    return isinstance(node, _Listed) or any(map(_has_list, getattr(node, "children", ())))


def _are_ragged(values: Sequence[Any]) -> bool:
    """Return whether values are lists, or tuples, that differ in length."""
    return (
        type(values[0]) is not dict
        and all(isinstance(value, list | tuple) for value in values)
        and len(set(map(len, values))) > 1
    )


def _check_lengths(values: Sequence[Sequence[Any]], path: KeyPath) -> None:
    """Raise ValueError if ``values`` differ in length."""
    try:
        for _ in zip(*values, strict=True):
            pass
    except ValueError as error:
        lengths = ", ".join(f"replica {i}: {len(each)}" for i, each in enumerate(values))
        error.add_note(f"Lengths of {format_path(path)}: {lengths}")
        raise


def _has_rows(value: Sequence[Any], dim: int) -> bool:
    """Return whether a list has a member that is no tensor, or has ``len(value)`` rows."""
    return not all(
        isinstance(each, Tensor)
        and -each.dim() <= dim < each.dim()
        and each.size(dim) != len(value)
        for each in value
    )


def _check_rebuilt(first: Any, members: Sequence[Any]) -> None:
    """Raise ValueError if ``first`` holds more than its members, so that it cannot be rebuilt."""
    with torch.no_grad():
        rebuilt = type(first)(tuple(members))
    if not is_same([*rebuilt], [*members]):
        raise ValueError("its class, called with its members, has other members")
    lost = find_difference(first, rebuilt, type(first).__name__)
    if lost is not None:
        raise ValueError(f"its class, called with its members, does not make {lost}")


def _find_recipes(values: Sequence[Any], branch: type[Branch]) -> list[Recipe] | None:
    """Return how to rebuild each of ``values``, or None if none has attributes."""
    recipes = [recipe_of(value, branch) for value in values]
    if not any(recipes):
        return None
    return [
        recipe or empty_recipe(list(branch.items(value)))
        for value, recipe in zip(values, recipes, strict=True)
    ]


def _is_single_value(value: Any) -> bool:
    """Return whether ``value`` is gathered as one value, not as a container."""
    if isinstance(value, _NO_CONTAINERS) or hasattr(value, "__array__"):
        return True
    is_sequence = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return not (is_sequence or hasattr(value, "__iter__") or is_dataclass_instance(value))


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
