"""Nodes of a flattened pytree.

There is one class of node for each kind of container.

A nested value is flattened into a tree of nodes. Any number of new values can be built from the
tree. A *branch* is the node of a container, and builds containers of the same kind from new parts.
A *leaf* is a node that the caller replaces by new values.
"""

import copy
import dataclasses
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

import torch

from ._torch_private import pytree_node

#: The path from the root to a part. The path of the root is the root's name. Any other path is a
#: tuple: the path of the container, the format of the last step (``"[{!r}]"``), and the last step,
#: which is an index, a key or a field name. These tuples are cheap to create; only error messages
#: format them.
KeyPath = str | tuple[Any, str, Any]

#: Errors that report a lack of memory. They are re-raised. Any other error of a container's class
#: means that the container cannot be iterated over or rebuilt.
MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)


def format_path(path: KeyPath) -> str:
    """Format ``path`` as Python code, for example ``kwargs['y'][1]`` or ``args[0].mask``."""
    steps = []
    while not isinstance(path, str):
        path, step_format, step = path
        steps.append(step_format.format(step))
    return path + "".join(reversed(steps))


class Node:
    """A node of a flattened value: a container, a leaf or a constant."""

    __slots__ = ()

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        """Return the objects to put in the position of this node in each of ``count`` new values.

        Raise ValueError if two leaves have different numbers of ``pieces``.
        """
        raise NotImplementedError


@dataclasses.dataclass(slots=True)
class Constant(Node):
    """The node of a part that is the same object in every new value."""

    value: Any

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        return [self.value] * count


class Leaf(Node):
    """The node of a part that the caller replaces by another object in each new value."""

    __slots__ = ()

    def unflatten(self, count: int, pieces: "Pieces") -> Sequence[Any]:
        return pieces[self]


#: For each leaf: its replacement in each new value.
Pieces = Mapping[Leaf, Sequence[Any]]


@dataclasses.dataclass(slots=True)
class Branch(Node):
    """The node of a container."""

    template: Any  # The original container, which is never changed.
    children: Sequence[Node]  # The nodes of the container's parts, in order.
    #: Called with an error of :meth:`build`. It raises another error, or returns an object to use
    #: in place of the container. None if no error is expected.
    refuse: Callable[[Exception], Any] | None = None

    #: The format of the step from the container to a part, for :func:`format_path`.
    step_format: ClassVar[str] = "[{!r}]"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        """Return a pair for each member of ``value``: its key or index, and the member."""
        return enumerate(value)

    @staticmethod
    def rows(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return a pair for each member: its key or index, and the member of each of ``values``.

        ``values`` are containers of the same kind. Raise ValueError if they differ in length.
        """
        return enumerate(zip(*values, strict=True))

    def unflatten(self, count: int, pieces: Pieces) -> Sequence[Any]:
        columns = []
        # Use a loop: before Python 3.12 a comprehension adds a stack frame per level of nesting.
        for child in self.children:
            columns.append(child.unflatten(count, pieces))
        parts = zip(*columns, strict=True) if columns else [()] * count
        return list(map(self.build if self.refuse is None else self._build_or_refuse, parts))

    def _build_or_refuse(self, parts: tuple[Any, ...]) -> Any:
        try:
            return self.build(parts)
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return self.refuse(error)  # type: ignore[misc] # not None

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a container of the template's kind from new parts, one for each child."""
        raise NotImplementedError


class TupleBranch(Branch):
    """The node of a tuple. ``build`` returns a plain tuple, also for a subclass of tuple."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return parts


class ListBranch(Branch):
    """The node of a list. ``build`` returns a plain list, also for a subclass of list."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> list[Any]:
        return list(parts)


class NamedTupleBranch(Branch):
    """The node of a named tuple. ``build`` passes the parts to the class of the named tuple."""

    __slots__ = ()
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return zip(value._fields, value, strict=True)

    @staticmethod
    def rows(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        return zip(values[0]._fields, zip(*values, strict=True), strict=True)

    def build(self, parts: tuple[Any, ...]) -> Any:
        return type(self.template)(*parts)


class MappingBranch(Branch):
    """The node of a mapping. The parts are the values of the mapping."""

    __slots__ = ()

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return value.items()  # type: ignore[no-any-return] # `value` is untyped

    @staticmethod
    def rows(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        if len({len(value) for value in values}) > 1:
            raise ValueError("All dicts must have the same number of keys")
        keys = values[0].keys()
        return ((key, [value[key] for value in values]) for key in keys)

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a mapping of the template's class with the template's keys.

        A dict or UserDict keeps its attributes and default factory, unless its copy raises an
        error.
        """
        pairs = zip(self.template.keys(), parts, strict=True)
        kind = type(self.template)
        if kind is dict:
            return dict(pairs)
        if isinstance(self.template, dict | UserDict):
            return _copy_with_items(self.template, list(pairs))
        # Build mappings of other classes from a dict: a shallow copy may share its storage with
        # the original.
        return kind(dict(pairs))


class FieldsBranch(Branch):
    """The node of a dataclass instance. The parts are the values of its :func:`_field_names`."""

    __slots__ = ()
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return ((name, getattr(value, name)) for name in _field_names(value))

    @staticmethod
    def rows(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        names = _field_names(values[0])
        return ((name, [getattr(value, name) for value in values]) for name in names)

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template without calling its class, and set the copy's fields."""
        built = copy.copy(self.template)
        for name, part in zip(_field_names(self.template), parts, strict=True):
            # This works for frozen dataclasses, too. Nothing else refers to the copy yet.
            object.__setattr__(built, name, part)
        return built


class RegisteredBranch(Branch):
    """The node of an object whose class is registered with ``torch.utils._pytree``."""

    __slots__ = ()

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        parts, _ = pytree_node(type(value)).flatten_fn(value)
        return enumerate(parts)

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build an object with the context of the template."""
        node = pytree_node(type(self.template))
        _, context = node.flatten_fn(self.template)
        return node.unflatten_fn(list(parts), context)


#: For each exact type of a container: the class of its node.
BRANCHES: dict[type, type[Branch]] = {tuple: TupleBranch, list: ListBranch, dict: MappingBranch}


def _field_names(instance: Any) -> list[str]:
    """Return the names of the fields of a dataclass instance that have a value.

    If a field is a tensor, the names of other attributes that are tensors follow: its
    ``__post_init__``, or a ``functools.cached_property``, has set them from the field.
    """
    names = [field.name for field in dataclasses.fields(instance) if hasattr(instance, field.name)]
    attributes = getattr(instance, "__dict__", {}).items()
    if any(isinstance(getattr(instance, name), torch.Tensor) for name in names):
        names += [name for name, value in attributes if isinstance(value, torch.Tensor)]
    return list(dict.fromkeys(names))


def is_registered(value: object) -> bool:
    """Return whether the class of ``value`` is registered with ``torch.utils._pytree``.

    Containers of Python, which PyTorch registers itself, do not count, nor do their subclasses:
    they have other nodes, or are no containers for torch.nn.parallel. Neither do TensorDicts:
    their contexts contain the size of the batch, so they are split by their own operators.
    """
    kind = type(value)
    return (
        pytree_node(kind) is not None
        and not issubclass(kind, tuple | list | dict | UserDict | deque)
        and not is_tensor_dict(value)
    )


def is_tensor_dict(value: object) -> bool:
    """Return whether ``value`` is a ``TensorDict``, or of a tensorclass, of tensordict."""
    kind = type(value)
    return hasattr(kind, "batch_size") and hasattr(kind, "__torch_function__")


def is_named_tuple(obj: object) -> bool:
    """Return whether ``obj`` is an instance of a ``namedtuple`` or ``typing.NamedTuple``."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def is_dataclass_instance(value: object) -> TypeGuard[Any]:
    """Return whether ``value`` is an instance of a dataclass, not a dataclass itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _copy_with_items(template: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Return a copy of ``template`` with the items ``pairs``.

    If copying or setting an item fails, call the class of ``template`` with ``pairs``.
    """
    try:
        built: Any = copy.copy(template)
        for key, value in pairs:
            built[key] = value
    except Exception:
        return type(template)(pairs)
    return built
