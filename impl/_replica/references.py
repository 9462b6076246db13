"""References to the modules of a tree in attributes and hooks.

An attribute or a hook refers to a module if it is

* the module, a bound method of it, or a weak reference to one of these,
* a ``functools.partial`` of something that refers to it, or with an argument that does,
* a list, tuple, dictionary or set, of exactly this class, with a member that does.

A replica refers to the replicas of these modules. A container or partial that refers to none stays
the same object. The others are copied once for each replica, so that shared objects and cycles
keep their structure.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakMethod, ref

from torch import nn

#: The classes of objects, besides modules, that may refer to a module and are rebound.
_REBOUND = frozenset({MethodType, partial, ref, WeakMethod, list, tuple, dict, set})
#: The classes of objects that may call a function.
_FUNCTIONS = frozenset({FunctionType, MethodType, partial})
#: Those of the rebound classes whose iterator yields all their members.
_FLAT = frozenset({list, tuple, set})


class References:
    """The references to the modules of one tree, and their counterparts in the replicas.

    ``replicas`` has the replicas of each module of the tree.
    """

    def __init__(self, replicas: Mapping[nn.Module | None, Sequence[Any]]) -> None:
        self._replicas = replicas
        self._kinds = _REBOUND.union(map(type, replicas)) - {type(None)}
        #: The functions of attributes and hooks. They are not rebound.
        self.functions: list[FunctionType] = []
        # For the `id` of each object that was searched: the object, which keeps the `id` from
        # coming back, and whether it refers to a module.
        self._known: dict[int, tuple[Any, bool]] = {}
        # For the index of a replica and the `id` of an object: the counterpart in the replica.
        self._copies: dict[tuple[int, int], Any] = {}

    def names(self, values: Mapping[Any, Any], names: Iterable[Any]) -> list[Any]:
        """Return those of ``names`` whose value refers to a module."""
        found = []
        for name in names:
            value = values[name]
            kind = type(value)
            if kind in _FUNCTIONS:
                function = _function(value)
                if type(function) is FunctionType:
                    self.functions.append(function)
            if kind in self._kinds:
                # Most containers hold numbers and names: `isdisjoint` is faster than a loop.
                if kind in _FLAT and self._kinds.isdisjoint(map(type, value)):
                    continue
                if self._refers(value):
                    found.append(name)
        return found

    def in_replica(self, value: Any, index: int) -> Any:
        """Return the counterpart of ``value`` in the replica ``index``."""
        kind = type(value)
        if kind not in self._kinds or not self._refers(value):
            return value
        if kind not in _REBOUND:
            return self._replicas[value][index]
        key = index, id(value)
        if key not in self._copies:
            copy = self._copy(value, index)
            # In a cycle, the members have already copied a tuple or a partial.
            self._copies.setdefault(key, copy)
        return self._copies[key]

    def _copy(self, value: Any, index: int) -> Any:
        kind, find = type(value), partial(self.in_replica, index=index)
        if kind is MethodType:
            return MethodType(value.__func__, find(value.__self__))
        if kind in (ref, WeakMethod):
            return kind(find(value()), value.__callback__)
        if kind is partial:
            keywords = {name: find(each) for name, each in value.keywords.items()}
            copied = partial(find(value.func), *map(find, value.args), **keywords)
            copied.__dict__.update({name: find(each) for name, each in vars(value).items()})
            return copied
        if kind is tuple:
            return tuple(map(find, value))
        copy = self._copies[index, id(value)] = kind()  # Before the members, which may contain it.
        if kind is list:
            copy.extend(map(find, value))
        elif kind is set:
            copy.update(map(find, value))
        else:
            copy.update((find(key), find(each)) for key, each in value.items())
        return copy

    def _refers(self, root: Any) -> bool:
        """Return whether ``root`` refers to a module of the tree."""
        if id(root) in self._known:
            return self._known[id(root)][1]
        searched: dict[int, Any] = {}
        pending = [root]
        while pending:
            value = pending.pop()
            if type(value) not in _REBOUND:
                if value in self._replicas:
                    self._known[id(root)] = root, True
                    return True
            elif id(value) not in searched:
                searched[id(value)] = value
                pending += [each for each in _members(value) if type(each) in self._kinds]
        self._known.update((key, (value, False)) for key, value in searched.items())
        return False


def _function(value: Any) -> Any:
    """Return the function that ``value`` calls, itself a function, a bound method or a partial."""
    if type(value) is MethodType:
        return value.__func__
    return value.func if type(value) is partial else value


def _members(value: Any) -> Sequence[Any] | set[Any]:
    """Return the objects to which ``value`` refers directly."""
    kind = type(value)
    if kind is MethodType:
        return (value.__self__,)
    if kind is partial:
        return (value.func, *value.args, *value.keywords.values(), *vars(value).values())
    if kind in (ref, WeakMethod):
        return (value(),)
    if kind is dict:
        return [*chain(value, value.values())]
    members: Sequence[Any] | set[Any] = value
    return members
