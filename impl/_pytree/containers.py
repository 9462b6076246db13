"""Nodes of a flattened pytree, and the containers that they are built from.

A value is flattened into a tree of nodes, from which any number of values can be built. A *branch*
is a node for a container, and builds containers of the same kind from new parts. A *leaf* is a
node that the caller replaces by new values.
"""

import copy
import dataclasses
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

#: The path from the root to a part. For the root it is the root's name. For any other part it is
#: the path of its container, the format of the last step (``"[{!r}]"``), and that step: an index,
#: a key or a field name. Linked pairs are cheap to create; only error messages format them.
KeyPath = str | tuple[Any, str, Any]


def format_path(path: KeyPath) -> str:
    """Return a path as Python code: ``kwargs['y'][1]``, ``args[0].mask``."""
    steps = []
    while not isinstance(path, str):
        path, step_format, step = path
        steps.append(step_format.format(step))
    return path + "".join(reversed(steps))


class Node:
    """A part of a flattened value."""

    __slots__ = ()

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        """Return this part of each of ``count`` new values.

        Args:
            count: The number of values.
            pieces: ``count`` values for each leaf.

        Raises:
            ValueError: Two leaves have different numbers of pieces.
        """
        raise NotImplementedError


class Constant(Node):
    """A part that every value refers to."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        return [self.value] * count


class Leaf(Node):
    """A part that the caller replaces."""

    __slots__ = ()

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        return pieces[self]


#: The replacements of each leaf, one for each new value.
Pieces = Mapping[Leaf, Sequence[Any]]


class Branch(Node):
    """A container.

    Args:
        template: The original container, which is never changed.
        children: The nodes of its parts, in order.
    """

    __slots__ = ("children", "template")

    #: The format of the step to a part, in a path.
    step_format: ClassVar[str] = "[{!r}]"

    def __init__(self, template: Any, children: Sequence[Node]) -> None:
        self.template = template
        self.children = children

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        """Return the parts of the container ``value``, each after the step that leads to it."""
        return enumerate(value)

    def unflatten(self, count: int, pieces: Pieces) -> Sequence[Any]:
        columns = []
        for child in self.children:  # Before Python 3.12 a comprehension adds a stack frame.
            columns.append(child.unflatten(count, pieces))
        parts = zip(*columns, strict=True) if columns else [()] * count
        return list(map(self.build, parts))

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Return a container like the template with new parts, one for each child."""
        raise NotImplementedError


class TupleBranch(Branch):
    """A tuple. A tuple of a subclass becomes a plain tuple."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return parts


class ListBranch(Branch):
    """A list. A list of a subclass becomes a plain list."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> list[Any]:
        return list(parts)


class NamedTupleBranch(Branch):
    """A named tuple. Its class is called with the fields."""

    __slots__ = ()
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return zip(value._fields, value, strict=True)

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)(*parts)


class MappingBranch(Branch):
    """A mapping; its parts are its values."""

    __slots__ = ()

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return value.items()  # type: ignore[no-any-return] # of any mapping

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Return a mapping of the template's class with its keys, default factory and attributes.

        A mapping that cannot be copied and written to is built from key and value pairs.
        """
        pairs = zip(self.template.keys(), parts, strict=True)
        kind = type(self.template)
        if kind is dict:
            return dict(pairs)
        if isinstance(self.template, dict | UserDict):
            return _copy_with_items(self.template, list(pairs))
        # A shallow copy of another mapping may share its items with the template.
        return kind(dict(pairs))


class FieldsBranch(Branch):
    """A dataclass instance; its parts are the values of its fields that are set."""

    __slots__ = ()
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return ((name, getattr(value, name)) for name in field_names(value))

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template and set the fields, without calling its constructor."""
        built = copy.copy(self.template)
        for name, part in zip(field_names(self.template), parts, strict=True):
            # The dataclass may be frozen, but nothing else refers to this copy yet.
            object.__setattr__(built, name, part)
        return built


def field_names(instance: Any) -> list[str]:
    """Return the names of the fields of a dataclass instance that have a value."""
    return [field.name for field in dataclasses.fields(instance) if hasattr(instance, field.name)]


def is_named_tuple(value: object) -> bool:
    """Return whether ``value`` is an instance of a ``namedtuple`` or ``typing.NamedTuple``."""
    return isinstance(value, tuple) and hasattr(value, "_asdict") and hasattr(value, "_fields")


def is_dataclass_instance(value: object) -> TypeGuard[Any]:
    """Return whether ``value`` is an instance of a dataclass, and not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _copy_with_items(template: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    try:
        built: Any = copy.copy(template)
        for key, value in pairs:
            built[key] = value
    except Exception:
        return type(template)(pairs)
    return built
