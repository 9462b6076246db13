"""What nested values are made of: containers that give up their parts and are built again.

A value is taken apart into a tree of nodes, and any number of values is built from the tree. A
*branch* stands for a container: it knows the container it was taken from and builds others of the
kind from new parts. What the leaves are is for those who split (``scatter``) and join
(``gather``) to say.

A *path* is the way from the root to a part. It is kept as linked pairs, which costs next to
nothing, and is only written out (``args[0]['mask']``) when an error has to name the part.
"""

import copy
import dataclasses
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

__all__ = [
    "Branch",
    "Constant",
    "FieldsBranch",
    "KeyPath",
    "Leaf",
    "ListBranch",
    "MappingBranch",
    "NamedTupleBranch",
    "Node",
    "Pieces",
    "TupleBranch",
    "field_names",
    "format_path",
    "is_dataclass_instance",
    "is_named_tuple",
]

#: How to get to a part. For the root it is the name of that. For any other part it is the path to
#: its container, how a step from there is spelled (``"[{!r}]"``), and the step: an index or a key.
KeyPath = str | tuple[Any, str, Any]


def format_path(path: KeyPath) -> str:
    """Spell a path as Python would: ``kwargs['y'][1]``, ``args[0].mask``."""
    steps = []
    while not isinstance(path, str):
        path, spelling, step = path
        steps.append(spelling.format(step))
    return path + "".join(reversed(steps))


class Node:
    """A part of a nested value, or the whole of it."""

    __slots__ = ()

    def unflatten(self, count: int, pieces: "Pieces") -> list[Any]:
        """List what stands here in each of ``count`` values built from the tree."""
        return list(self.column(count, pieces))

    def column(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        """Give the same once all that is below has been built."""
        raise NotImplementedError


class Constant(Node):
    """A part that stands in every value by reference."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def column(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        """Repeat the reference."""
        return [self.value] * count


class Leaf(Node):
    """A part that is worked out between taking apart and building."""

    __slots__ = ()

    def column(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        """Give its pieces, of which there must be ``count``."""
        return pieces[self]


#: What stands in each value where a leaf is.
Pieces = Mapping[Leaf, Sequence[Any]]


class Branch(Node):
    """A container taken apart.

    Args:
        template: The container; others are built in its likeness. It is never written to.
        children: Nodes of its parts, in order.

    Attributes:
        built: The containers built from it, once they are.
    """

    __slots__ = ("built", "children", "template")

    #: How a step from such a container to one of its parts is written.
    spelling: ClassVar[str] = "[{!r}]"
    built: list[Any]

    def __init__(self, template: Any, children: Sequence[Node]) -> None:
        self.template = template
        self.children = children

    def unflatten(self, count: int, pieces: Pieces) -> list[Any]:
        """Build ``count`` containers and all that is below, parts before wholes.

        The branches are listed, not visited by a method that calls itself: there may be more of
        them below each other than Python lets calls be nested.
        """
        branches: list[Branch] = [self]
        for branch in branches:
            branches += [child for child in branch.children if isinstance(child, Branch)]
        for branch in reversed(branches):
            branch.build_all(count, pieces)
        return self.built

    def column(self, count: int, pieces: Pieces) -> Sequence[Any]:
        """Give the containers that have been built."""
        return self.built

    def build_all(self, count: int, pieces: Pieces) -> None:
        """Build ``count`` containers, each from its column of parts."""
        columns = [child.column(count, pieces) for child in self.children]
        parts = zip(*columns, strict=True) if columns else [()] * count
        self.built = list(map(self.build, parts))

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a container like the template from new parts, one for each child."""
        raise NotImplementedError


class TupleBranch(Branch):
    """A tuple."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Build a plain tuple, whatever subclass the template is of."""
        return parts


class ListBranch(Branch):
    """A list."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> list[Any]:
        """Build a plain list, whatever subclass the template is of."""
        return list(parts)


class NamedTupleBranch(Branch):
    """A named tuple."""

    __slots__ = ()
    spelling = ".{}"

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a named tuple of the template's class, which is called with the fields."""
        return type(self.template)(*parts)


class MappingBranch(Branch):
    """A mapping; its parts are its values, in its order."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a mapping of the template's class with the template's keys.

        A default factory and attributes are kept. A mapping that cannot be copied and written
        to is built by calling its class with key and value pairs.
        """
        pairs = zip(self.template.keys(), parts, strict=True)
        kind = type(self.template)
        if kind is dict:
            return dict(pairs)
        if isinstance(self.template, dict | UserDict):
            return _overwritten(self.template, list(pairs))
        # What a shallow copy of any other mapping shares with the template is not known.
        return kind(dict(pairs))


class FieldsBranch(Branch):
    """A dataclass instance; its parts are the values of its fields that are set."""

    __slots__ = ()
    spelling = ".{}"

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template and set the fields, without running its constructor again."""
        built = copy.copy(self.template)
        for name, part in zip(field_names(self.template), parts, strict=True):
            # Past a frozen dataclass's own refusal: nobody else has seen this copy yet.
            object.__setattr__(built, name, part)
        return built


def field_names(instance: Any) -> list[str]:
    """Name the fields of a dataclass instance that have a value."""
    return [field.name for field in dataclasses.fields(instance) if hasattr(instance, field.name)]


def is_named_tuple(value: object) -> bool:
    """Tell whether ``value`` is an instance of a ``namedtuple`` or ``typing.NamedTuple``."""
    return isinstance(value, tuple) and hasattr(value, "_asdict") and hasattr(value, "_fields")


def is_dataclass_instance(value: object) -> TypeGuard[Any]:
    """Tell whether ``value`` is an instance of a dataclass, not such a class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _overwritten(template: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    try:
        built: Any = copy.copy(template)
        for key, value in pairs:
            built[key] = value
    except Exception:
        return type(template)(pairs)
    return built
