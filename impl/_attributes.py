"""Attributes of containers that are rebuilt around new items.

The class of a container makes some attributes from the items, such as
``self.rows = len(self["x"])``. A rebuilt container has those that its class makes from the new
items. All other attributes, such as those that a user has set, are carried. A call of the class
with the original items, the *control*, shows which attributes the class makes.
"""

from collections import UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

#: Errors that report a lack of memory. They are re-raised. Any other error of a container's class
#: means that the container cannot be iterated over or rebuilt.
MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)

#: Classes of values without other parts.
_PLAIN = (int, float, complex, str, bytes)

#: A call of the class of a container, given the class, the keys and the parts.
ClassCall = Callable[[Any, Sequence[Any], Sequence[Any]], Any]


@dataclass(slots=True)
class Recipe:
    """How to rebuild a container that has attributes."""

    call: ClassCall | None  # None if no call of the class returns the items.
    keys: Sequence[Any]  # The keys of the items.
    parts: Sequence[Any]  # The items.
    attributes: Mapping[str, Any]
    carried: Sequence[str]  # The names of the attributes that the call does not make.
    cached: Sequence[str]  # The names of cached values, such as those of `cached_property`.

    def finish(self, built: Any, attributes: Iterable[Any]) -> None:
        """Set the carried ``attributes`` of ``built``."""
        for name in self.cached:
            built.__dict__.pop(name, None)
        for name, value in zip(self.carried, attributes, strict=True):
            # This works for frozen dataclasses, too. Nothing else refers to the object yet.
            object.__setattr__(built, name, value)


def find_recipe(
    value: Any,
    calls: Sequence[ClassCall],
    items: Callable[[Any], Iterable[tuple[Any, Any]]],
    *,
    items_are_attributes: bool,
) -> Recipe | None:
    """Return how to rebuild ``value``, or None if it has no attributes beside its items.

    Args:
        value: A container.
        calls: Calls of its class. The first one whose result has the same items is used.
        items: A function that returns the keys and parts of a container.
        items_are_attributes: Whether the items are attributes, as the fields of a dataclass.
    """
    attributes, cached = attributes_of(value)
    if not (calls and (attributes or cached)):
        return None
    pairs = list(items(value))
    keys, parts = [key for key, _ in pairs], [part for _, part in pairs]
    if items_are_attributes:
        attributes = {name: each for name, each in attributes.items() if name not in keys}
        if not (attributes or cached):
            return None
    for call in calls if attributes else ():
        made = _made_attributes(value, call, pairs, items)
        if made is not None:
            carried = [name for name in attributes if name not in made]
            return Recipe(call, keys, parts, attributes, carried, cached)
    return Recipe(None, keys, parts, attributes, [*attributes], cached)


def empty_recipe(pairs: Sequence[tuple[Any, Any]]) -> Recipe:
    """Return the recipe of a container without attributes; ``pairs`` are its keys and parts."""
    return Recipe(None, [key for key, _ in pairs], [part for _, part in pairs], {}, [], [])


def _made_attributes(
    value: Any,
    call: ClassCall,
    pairs: Sequence[tuple[Any, Any]],
    items: Callable[[Any], Iterable[tuple[Any, Any]]],
) -> set[str] | None:
    """Return the attributes that ``call`` makes as they are; None if it makes other items."""
    try:
        control = call(type(value), [key for key, _ in pairs], [part for _, part in pairs])
        pair = frozenset([(id(value), id(control))])
        made = list(items(control))
        if not (_are_alike(control, value) and is_same(list(pairs), made, pair)):
            return None
        of_control, _ = attributes_of(control)
    except MEMORY_ERRORS:
        raise
    except Exception:
        return None
    attributes, _ = attributes_of(value)
    names = attributes.keys() & of_control.keys()
    return {name for name in names if is_same(attributes[name], of_control[name], pair)}


def _are_alike(control: Any, value: Any) -> bool:
    """Return whether two containers have the same class, default factory and maximal length."""
    # Ask for no other attribute: some dictionaries create each attribute that is asked for.
    if type(control) is not type(value):
        return False
    if isinstance(value, defaultdict):
        return control.default_factory is value.default_factory
    return not isinstance(value, deque) or control.maxlen == value.maxlen


def attributes_of(value: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes of ``value``, and the names of its cached values of properties."""
    attributes: dict[str, Any] = {}
    cached = []
    kinds = type(value).__mro__
    own: dict[Any, Any] = getattr(value, "__dict__", {})
    if own is not getattr(value, "__dict__", None):
        own = {}  # A property of the class makes it.
    for name, attribute in list(own.items()):
        if any(_caches_value(vars(kind).get(name)) for kind in kinds):
            cached.append(name)
        elif isinstance(name, str):
            attributes[name] = attribute
    attributes.update(slots_of(value))
    if isinstance(value, UserDict | UserList):
        attributes.pop("data", None)  # The items, unless the class makes it a property.
    return attributes, cached


def slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the slots of ``value`` that are set."""
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if name != "__dict__" and name != "__weakref__" and hasattr(value, name):
                yield name, getattr(value, name)


def _caches_value(member: Any) -> bool:
    """Return whether ``member`` stores a value in the attribute of its own name."""
    kind = type(member)
    return hasattr(kind, "__get__") and not (hasattr(kind, "__set__") or callable(member))


def is_same(
    first: Any, second: Any, counterparts: frozenset[tuple[int, int]] = frozenset()
) -> bool:
    """Return whether two values are equal in all parts. ``counterparts`` are pairs that are."""
    pair = (id(first), id(second))
    if first is second or pair in counterparts:
        return True
    if type(first) is not type(second):
        return False
    counterparts |= {pair}
    try:
        return _have_same_parts(first, second, counterparts)
    except MEMORY_ERRORS:
        raise
    except Exception:
        return False


def _have_same_parts(first: Any, second: Any, counterparts: frozenset[tuple[int, int]]) -> bool:
    if isinstance(first, Tensor) or hasattr(type(first), "__array__"):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        if isinstance(first, Tensor) and first.requires_grad != second.requires_grad:
            return False
        equal = (first == second) | ((first != first) & (second != second))  # NaN equals NaN.
        return bool(equal.all())
    if isinstance(first, Mapping):
        first, second = [
            [*each.items(), *sorted(attributes_of(each)[0].items(), key=itemgetter(0))]
            for each in (first, second)
        ]
    if isinstance(first, FunctionType):
        first, second = _parts_of_function(first), _parts_of_function(second)
    if isinstance(first, list | tuple | deque | UserList):
        pairs = zip(first, second, strict=True)
        return all(is_same(*each, counterparts) for each in pairs)
    if isinstance(first, (*_PLAIN, type)):
        return _are_equal(first, second)
    # Objects with attributes may be equal without being the same, so compare their states.
    if not attributes_of(first)[0] and _are_equal(first, second):
        return True
    return is_same(first.__reduce_ex__(4), second.__reduce_ex__(4), counterparts)


def find_difference(
    first: Any, second: Any, path: str, seen: frozenset[int] = frozenset()
) -> str | None:
    """Return the path of a tensor, plain value or class in ``first`` that ``second`` lacks.

    Tensors are compared by shape. Return None if nothing differs.
    """
    if id(first) in seen or first is second:
        return None
    if isinstance(first, Tensor):
        return None if isinstance(second, Tensor) and second.shape == first.shape else path
    if isinstance(first, _PLAIN):
        return None if first == second else path
    parts = _parts_of(first)
    if not parts:
        return None
    others = _parts_of(second) if type(first) is type(second) else {}
    if len(others) < len(parts):
        return path
    seen |= {id(first)}
    differences = (
        find_difference(part, others.get(step), f"{path}{step}", seen)
        for step, part in parts.items()
    )
    return next((each for each in differences if each is not None), None)


def _parts_of(value: Any) -> dict[str, Any]:
    """Return the members and the attributes of ``value`` by the last steps of their paths."""
    parts = {}
    if isinstance(value, Mapping):
        parts = {f"[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, list | tuple | deque | UserList):
        parts = {f"[{index}]": part for index, part in enumerate(value)}
    if not (isinstance(value, type) or callable(value)):
        parts.update((f".{name}", part) for name, part in attributes_of(value)[0].items())
    return parts


def _parts_of_function(function: FunctionType) -> Sequence[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells]


def _are_equal(first: Any, second: Any) -> bool:
    try:
        return bool(first == second)
    except Exception:
        return False  # For example, dataclasses with tensors.
