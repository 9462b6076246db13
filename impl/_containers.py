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
from contextlib import suppress
from functools import partial
from operator import is_
from types import MethodType
from typing import Any, ClassVar, TypeGuard

from torch import Tensor

from ._attributes import MEMORY_ERRORS as MEMORY_ERRORS
from ._attributes import ClassCall, Recipe, find_recipe, is_same
from ._torch_private import pytree_node

#: The path from the root to a part. The path of the root is the root's name. Any other path is a
#: tuple: the path of the container, the format of the last step (``"[{!r}]"``), and the last step,
#: which is an index, a key or a field name. These tuples are cheap to create; only error messages
#: format them.
KeyPath = str | tuple[Any, str, Any]


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
    #: The nodes of the container's parts, in order, and then those of its carried attributes.
    children: Sequence[Node]
    #: Called with an error of :meth:`build`. It raises another error, or returns an object to use
    #: in place of the container. None if no error is expected.
    refuse: Callable[[Exception], Any] | None = None
    #: How to rebuild a container that has attributes.
    recipe: Recipe | None = None

    #: Calls of the container's class that may make a container from its parts.
    calls: ClassVar[Sequence[ClassCall]] = ()
    #: The format of the step from the container to a part, for :func:`format_path`.
    step_format: ClassVar[str] = "[{!r}]"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        """Return a pair for each member of ``value``: its key or index, and the member."""
        return enumerate(value)

    @staticmethod
    def items_of_all(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return pairs: the key or index of a member, and the member of each of ``values``."""
        return enumerate(zip(*values, strict=True))

    def unflatten(self, count: int, pieces: Pieces) -> Sequence[Any]:
        columns = []
        # Use a loop: before Python 3.12 a comprehension adds a stack frame per level of nesting.
        for child in self.children:
            columns.append(child.unflatten(count, pieces))
        parts = zip(*columns, strict=True) if columns else [()] * count
        build = self.build if self.recipe is None else self._build_with_attributes
        if self.refuse is None:
            return list(map(build, parts))
        return [self._build_or_refuse(build, each) for each in parts]

    def _build_or_refuse(self, build: Callable[[Any], Any], parts: tuple[Any, ...]) -> Any:
        try:
            return build(parts)
        except MEMORY_ERRORS:
            raise
        except Exception as error:
            return self.refuse(error)  # type: ignore[misc] # not None

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a container of the template's kind from new parts, one for each child."""
        raise NotImplementedError

    def _build_with_attributes(self, parts: tuple[Any, ...]) -> Any:
        recipe: Recipe = self.recipe  # type: ignore[assignment] # not None
        count = len(recipe.keys)
        built = self._make(recipe, parts[:count])
        if type(built) is not type(self.template):
            return built
        before = list(self.items(built)) if isinstance(built, Mapping) else []
        recipe.finish(built, [_rebind(part, self.template, built) for part in parts[count:]])
        if before and not is_same(list(self.items(built)), before):
            # One of the attributes holds the items.
            return self._make(recipe, parts[:count])
        return built

    def _make(self, recipe: Recipe, parts: tuple[Any, ...]) -> Any:
        if recipe.call is None:
            return self.build(parts)
        kind = type(self.template)
        try:
            built = recipe.call(kind, recipe.keys, parts)
            if type(built) is not kind or is_same([m for _, m in self.items(built)], [*parts]):
                return built
        except MEMORY_ERRORS:
            raise
        except Exception:
            pass
        # The class accepts the original items, but refuses or changes the new ones.
        built = self.build(parts)
        # The class has made these attributes from the original items, so they have other rows, or
        # count other rows. Delete them: their use then raises an error.
        tensors = [item for _, item in self.items(self.template) if isinstance(item, Tensor)]
        sizes = {size for tensor in tensors for size in tensor.shape}
        for name in recipe.attributes.keys() - {*recipe.carried, *recipe.keys}:
            value = recipe.attributes[name]
            if isinstance(value, Tensor) or (type(value) is int and value in sizes):
                with suppress(AttributeError):
                    object.__delattr__(built, name)
        return built


class TupleBranch(Branch):
    """The node of a plain tuple."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return parts


class ListBranch(Branch):
    """The node of a plain list."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> list[Any]:
        return list(parts)


class SequenceBranch(Branch):
    """The node of a UserList, a deque, or an instance of a subclass of list or tuple."""

    __slots__ = ()
    calls = (lambda kind, keys, parts: kind(parts), lambda kind, keys, parts: kind(*parts))

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a sequence of the template's class.

        A tuple is made by a call of its class, another sequence is a copy of the template. If the
        result has other members, a list is made by a call of its class, a tuple by `tuple`.
        """
        kind = type(self.template)
        is_tuple = isinstance(self.template, tuple)
        for make in (kind, partial(tuple.__new__, kind)) if is_tuple else (self._copy, kind):
            try:
                built = make(parts)
                if all(one is other for one, other in zip(built, parts, strict=True)):
                    return built
            except MEMORY_ERRORS:
                raise
            except Exception:
                pass
        raise ValueError(f"no call of {kind.__name__} returns the members")

    def _copy(self, parts: tuple[Any, ...]) -> Any:
        if isinstance(self.template, deque):  # `copy` calls its class.
            built: Any = deque.__new__(type(self.template))
            deque.__init__(built, parts, self.template.maxlen)
            return built
        built = _copy(self.template)
        built.clear()
        built.extend(parts)
        return built


class NamedTupleBranch(Branch):
    """The node of a named tuple. ``build`` passes the parts to the class of the named tuple."""

    __slots__ = ()
    calls: ClassVar[Sequence[ClassCall]] = (lambda kind, keys, parts: kind(*parts),)
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return zip(value._fields, value, strict=True)

    @staticmethod
    def items_of_all(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        return zip(values[0]._fields, zip(*values, strict=True), strict=True)

    def build(self, parts: tuple[Any, ...]) -> Any:
        built = type(self.template)(*parts)
        # The class may change its members.
        return built if all(map(is_, built, parts)) else built._make(parts)


class MappingBranch(Branch):
    """The node of a mapping. The parts are the values of the mapping."""

    __slots__ = ()
    calls = (
        lambda kind, keys, parts: kind(dict(zip(keys, parts, strict=True))),
        lambda kind, keys, parts: kind(list(zip(keys, parts, strict=True))),
        lambda kind, keys, parts: kind(**dict(zip(keys, parts, strict=True))),
    )

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return _stored_items(value).items()

    @staticmethod
    def items_of_all(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        members = [_stored_items(value) for value in values]
        if len({len(member) for member in members}) > 1:
            raise ValueError("All dicts must have the same number of keys")
        return ((key, [member[key] for member in members]) for key in members[0])

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
        items = dict(pairs)
        built = kind(items)
        if not _have_same_items(dict(built.items()), items):
            raise TypeError(f"{kind.__name__}, called with a dict of its items, has other items")
        return built


class FieldsBranch(Branch):
    """The node of a dataclass instance. The parts are the fields that its constructor takes."""

    __slots__ = ()
    calls = (lambda kind, keys, parts: kind(**dict(zip(keys, parts, strict=True))),)
    step_format = ".{}"

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        return ((name, getattr(value, name)) for name in _field_names(value))

    @staticmethod
    def items_of_all(values: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        names = _field_names(values[0])
        if any(_field_names(value) != names for value in values[1:]):
            raise ValueError("All dataclass instances must have the same fields")
        return ((name, [getattr(value, name) for value in values]) for name in names)

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Copy the template without calling its class, and set the copy's fields."""
        names = _field_names(self.template)
        built = copy.copy(self.template)
        if built is self.template:
            return self.calls[0](type(built), names, parts)
        for name, part in zip(names, parts, strict=True):
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
    """Return the names of the fields that are set, and that the constructor takes."""
    fields = dataclasses.fields(instance)
    return [field.name for field in fields if field.init and hasattr(instance, field.name)]


def recipe_of(value: Any, branch: type[Branch]) -> Recipe | None:
    """Return how to rebuild ``value``, of the node class ``branch``, if it has attributes."""
    is_dataclass = issubclass(branch, FieldsBranch)
    return find_recipe(value, branch.calls, branch.items, items_are_attributes=is_dataclass)


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


def _have_same_items(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> bool:
    """Return whether two dictionaries have the same keys, and the same objects as values."""
    return first.keys() == second.keys() and all(first[key] is second[key] for key in first)


def _stored_items(value: Any) -> dict[Any, Any]:
    """Return the items of the mapping ``value``.

    ``value[key]`` of a subclass may change a part, or add a missing one. Tensors are returned as
    they are stored, because the rebuilt mapping changes them when they are read.
    """
    if type(value) is dict:
        return value
    items = dict(value.items())
    if isinstance(value, dict | UserDict):
        stored = value.data if isinstance(value, UserDict) else dict(dict.items(value))
        for key, part in items.items():
            if isinstance(part, Tensor) and isinstance(stored.get(key), Tensor):
                items[key] = stored[key]
    return items


def _rebind(part: Any, template: Any, built: Any) -> Any:
    """Return ``part``, or its counterpart if it is the container itself or a method of it."""
    if part is template:
        return built
    if getattr(part, "__self__", None) is not template:
        return part
    if isinstance(part, MethodType):
        return MethodType(part.__func__, built)
    return getattr(built, part.__name__)  # A method of a built-in class.


def _copy(value: Any) -> Any:
    """Return a shallow copy of an object. Raise TypeError if its class returns the object."""
    copied = copy.copy(value)
    if copied is value:
        raise TypeError  # The callers build the container otherwise.
    return copied


def _copy_with_items(template: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Return a copy of ``template`` with other items, made by its class if a copy refuses them."""
    try:
        built: Any = _copy(template)
        for key, value in pairs:
            built[key] = value
        items = dict(pairs)
        if not _have_same_items(dict(built.items()), items):  # The class changes what is set.
            dict.update(built.data if isinstance(built, UserDict) else built, items)
        if getattr(template, "__dict__", None) is template:
            built.__dict__ = built
    except MEMORY_ERRORS:
        raise
    except Exception:
        return type(template)(pairs)
    return built
