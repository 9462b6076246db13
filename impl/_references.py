"""References to the modules of a tree in attributes and hooks.

An attribute or a hook refers to a module if it is

* the module, a bound method of it, or a weak reference to one of these,
* a ``functools.partial`` of something that refers to it, or with an argument that does,
* a container with a member that does, if its class is exactly ``list``, ``tuple``, ``deque``,
  ``dict``, ``OrderedDict``, ``defaultdict``, ``set`` or ``frozenset``.

Parameters and buffers of the tree count as modules where they are keys of a dictionary or members
of a set: a replica looks its copies up.

A replica refers to the replicas of these modules. A container or partial without a
reference stays the same object. One with a reference is copied once for each replica, so that
shared objects and cycles keep their structure.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakMethod, ref

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ._torch_private import StateDictHook

#: The containers that are rebound.
_SEQUENCES = frozenset({list, tuple, deque})
_MAPPINGS = frozenset({dict, OrderedDict, defaultdict})
#: The containers in which an object is looked up by its hash.
_HASHED = _MAPPINGS | {set, frozenset}
#: The plain containers.
CONTAINERS = _SEQUENCES | _HASHED
#: The classes of objects, besides modules, that may refer to a module and are rebound.
REBOUND = CONTAINERS | {MethodType, partial, ref, WeakMethod}
#: The classes of objects that may call a function.
_FUNCTIONS = frozenset({FunctionType, MethodType, partial})
#: The classes of the most frequent objects that refer to no module, and of PyTorch's objects that
#: refer to a module and are not called in a forward.
_PLAIN = frozenset(
    {type(None), bool, int, float, str, Tensor, nn.Parameter, RemovableHandle, StateDictHook}
)


class References:
    """The references to the modules of one tree, and their counterparts in the replicas.

    ``replicas`` has the replicas of each module of the tree, ``tensors`` the copies of each
    parameter and buffer by its ``id``. With ``finds_objects``, objects that may refer to a module
    in other ways are found, too.
    """

    def __init__(
        self,
        replicas: Mapping[nn.Module | None, Sequence[Any]],
        tensors: Mapping[int, Sequence[Any]],
        *,
        finds_objects: bool,
    ) -> None:
        self._replicas = replicas
        self._tensors = tensors
        self._finds_objects = finds_objects
        self._kinds = REBOUND.union(map(type, replicas)) - {type(None)}
        #: The functions in attributes and hooks, and with ``finds_objects`` those in containers,
        #: and objects of other classes. They are not rebound.
        self.not_rebound: list[Any] = []
        # For the `id` of each object that was searched: the object, which keeps the `id` from
        # coming back, and whether it refers to a module.
        self._known: dict[int, tuple[Any, bool]] = {}
        # For the index of a replica and the `id` of an object: the counterpart in the replica.
        self._copies: dict[tuple[int, int], Any] = {}

    def find_referring(self, values: Mapping[Any, Any], names: Iterable[Any]) -> list[Any]:
        """Return those of ``names`` whose value refers to a module."""
        referring = []
        for name in names:
            value = values[name]
            kind = type(value)
            function = _function(value) if kind in _FUNCTIONS else None
            if type(function) is FunctionType:
                self.not_rebound.append(function)
            if kind in self._kinds:
                # Most containers hold numbers and names: this is faster than a loop.
                if kind in _SEQUENCES and self._is_irrelevant({*map(type, value)}):
                    continue
                if self._refers(value):
                    referring.append(name)
            elif self._finds_objects and value is not function and kind not in _PLAIN:
                self.not_rebound.append(value)
        return referring

    def _is_irrelevant(self, kinds: set[type]) -> bool:
        """Return whether no object of a class among ``kinds`` is rebound or warned of."""
        return kinds <= _PLAIN if self._finds_objects else kinds.isdisjoint(self._kinds)

    def in_replica(self, value: Any, index: int) -> Any:
        """Return the counterpart of ``value`` in the replica ``index``."""
        kind = type(value)
        if kind not in self._kinds or not self._refers(value):
            return value
        if kind not in REBOUND:
            return self._replicas[value][index]
        key = index, id(value)
        if key not in self._copies:
            copy = self._copy(value, index)
            # In a cycle, the members have already copied a tuple or a partial.
            self._copies.setdefault(key, copy)
        return self._copies[key]

    def _copy(self, value: Any, index: int) -> Any:
        kind, find = type(value), partial(self.in_replica, index=index)
        find_key = partial(self._find_key, index=index)
        if kind is MethodType:
            return MethodType(value.__func__, find(value.__self__))
        if kind in (ref, WeakMethod):
            return kind(find(value()), value.__callback__)
        if kind is partial:
            keywords = {name: find(each) for name, each in value.keywords.items()}
            copied = partial(find(value.func), *map(find, value.args), **keywords)
            copied.__dict__.update({name: find(each) for name, each in vars(value).items()})
            return copied
        if kind in (tuple, frozenset):
            return kind(map(find if kind is tuple else find_key, value))
        # An entry is made before the members are copied, because they may contain the container.
        copy = self._copies[index, id(value)] = _empty_copy(value)
        if kind in _MAPPINGS:
            copy.update((find_key(key), find(each)) for key, each in value.items())
        elif kind is set:
            copy.update(map(find_key, value))
        else:
            copy.extend(map(find, value))
        return copy

    def _find_key(self, key: Any, index: int) -> Any:
        if isinstance(key, Tensor) and id(key) in self._tensors:
            return self._tensors[id(key)][index]
        return self.in_replica(key, index)

    def _has_tensors_as_keys(self, value: Any) -> bool:
        # Most keys are numbers and names: a set of their classes is faster than a loop.
        if type(value) not in _HASHED or not any(
            issubclass(kind, Tensor) for kind in {*map(type, value)}
        ):
            return False
        return any(isinstance(key, Tensor) and id(key) in self._tensors for key in value)

    def _refers(self, root: Any) -> bool:
        """Return whether ``root`` refers to a module of the tree, or has tensors as keys."""
        if id(root) in self._known:
            return self._known[id(root)][1]
        refers = False
        searched: dict[int, Any] = {}
        pending = [root]
        while pending:
            value = pending.pop()
            if type(value) not in REBOUND:
                refers = refers or value in self._replicas
            elif id(value) not in searched:
                searched[id(value)] = value
                refers = refers or self._has_tensors_as_keys(value)
                for each in members(value):
                    if type(each) in self._kinds:
                        pending.append(each)
                    elif self._finds_objects and type(each) not in _PLAIN:
                        self.not_rebound.append(each)
        if refers:
            self._known[id(root)] = root, True
        else:
            self._known.update((key, (value, False)) for key, value in searched.items())
        return refers


def _function(value: Any) -> Any:
    """Return the function that ``value`` calls, itself a function, a bound method or a partial."""
    if type(value) is MethodType:
        return value.__func__
    return value.func if type(value) is partial else value


def _empty_copy(container: Any) -> Any:
    """Return an empty container with the class and the settings of ``container``."""
    if type(container) is defaultdict:
        return defaultdict(container.default_factory)
    return deque(maxlen=container.maxlen) if type(container) is deque else type(container)()


def members(value: Any) -> Sequence[Any] | set[Any]:
    """Return the objects to which ``value`` refers directly."""
    kind = type(value)
    if kind is MethodType:
        return (value.__self__,)
    if kind is partial:
        return (value.func, *value.args, *value.keywords.values(), *vars(value).values())
    if kind in (ref, WeakMethod):
        return (value(),)
    if kind in _MAPPINGS:
        return [*chain(value, value.values())]
    contained: Sequence[Any] | set[Any] = value
    return contained
