"""References to the modules of a tree in attributes and hooks.

An attribute or a hook refers to a module if it is

* the module, a bound method of it, or a weak reference to one of these,
* a ``functools.partial`` of something that refers to it, or with an argument that does,
* a container with a member that does, if its class is exactly ``list``, ``tuple``, ``deque``,
  ``dict``, ``OrderedDict``, ``defaultdict``, ``set`` or ``frozenset``.

A replica refers to the replicas of these modules. A container or partial without a
reference stays the same object. One with a reference is copied once for each replica, so that
shared objects and cycles keep their structure.
"""

import gc
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakMethod, ref

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ._torch_private import StateDictHook

#: The containers that are rebound: those whose iterator yields all their members, and mappings.
_FLAT = frozenset({list, tuple, deque, set, frozenset})
_MAPPINGS = frozenset({dict, OrderedDict, defaultdict})
#: The classes of objects, besides modules, that may refer to a module and are rebound.
_REBOUND = _FLAT | _MAPPINGS | {MethodType, partial, ref, WeakMethod}
#: The classes of objects that may call a function.
_FUNCTIONS = frozenset({FunctionType, MethodType, partial})
#: The classes of the most frequent objects that refer to no module, and of PyTorch's objects that
#: refer to a module and are not called in a forward.
_PLAIN = frozenset(
    {type(None), bool, int, float, str, Tensor, nn.Parameter, RemovableHandle, StateDictHook}
)


class References:
    """The references to the modules of one tree, and their counterparts in the replicas.

    ``replicas`` has the replicas of each module of the tree. With ``finds_objects``, objects that
    may refer to a module in other ways are found, too.
    """

    def __init__(
        self, replicas: Mapping[nn.Module | None, Sequence[Any]], *, finds_objects: bool
    ) -> None:
        self._replicas = replicas
        self._finds_objects = finds_objects
        self._kinds = _REBOUND.union(map(type, replicas)) - {type(None)}
        #: The functions in attributes and hooks, and with ``finds_objects`` those in containers,
        #: and objects of other classes. They are not rebound.
        self.others: list[Any] = []
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
            function = _function(value) if kind in _FUNCTIONS else None
            if type(function) is FunctionType:
                self.others.append(function)
            if kind in self._kinds:
                # Most containers hold numbers and names: this is faster than a loop.
                if kind in _FLAT and self._is_irrelevant({*map(type, value)}):
                    continue
                if self._refers(value):
                    found.append(name)
            elif self._finds_objects and value is not function and kind not in _PLAIN:
                self.others.append(value)
        return found

    def _is_irrelevant(self, kinds: set[type]) -> bool:
        """Return whether no object of a class among ``kinds`` is rebound or warned of."""
        return kinds <= _PLAIN if self._finds_objects else kinds.isdisjoint(self._kinds)

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
        if kind in (tuple, frozenset):
            return kind(map(find, value))
        # An entry is made before the members are copied, because they may contain the container.
        copy = self._copies[index, id(value)] = _empty_copy(value)
        if kind in _MAPPINGS:
            copy.update((find(key), find(each)) for key, each in value.items())
        elif kind is set:
            copy.update(map(find, value))
        else:
            copy.extend(map(find, value))
        return copy

    def _refers(self, root: Any) -> bool:
        """Return whether ``root`` refers to a module of the tree."""
        if id(root) in self._known:
            return self._known[id(root)][1]
        refers = False
        searched: dict[int, Any] = {}
        pending = [root]
        while pending:
            value = pending.pop()
            if type(value) not in _REBOUND:
                refers = refers or value in self._replicas
            elif id(value) not in searched:
                searched[id(value)] = value
                for each in _members(value):
                    if type(each) in self._kinds:
                        pending.append(each)
                    elif self._finds_objects and type(each) not in _PLAIN:
                        self.others.append(each)
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


def _members(value: Any) -> Sequence[Any] | set[Any]:
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
    members: Sequence[Any] | set[Any] = value
    return members


# Modules that functions and helper objects hold.
#
# A replica that calls such a function runs on the module that it holds, not on the replica of
# this module.


#: The remedy that warnings and notes name.
_REMEDY = (
    "Replicas rebind methods, partials, lists and dictionaries, not closures and other objects: "
    "make the function a method of the module, or bind it with types.MethodType(function, module);"
    " replace the object by a list, a dictionary or an attribute of the module"
)
#: The number of steps from an attribute to a held module, at most.
_DEPTH = 4
#: The number of objects that are searched for a held module, at most.
_MOST_OBJECTS = 10_000
#: The functions and objects that were checked, by `id` and class, so that each is warned of once.
#: The value is a weak reference, which removes the entry when the object is freed. An object that
#: cannot have one is noted until the root of its tree is freed.
_checked: dict[tuple[int, type], Any] = {}


def warn_of_others(others: Iterable[Any], modules: Sequence[nn.Module]) -> None:
    """Warn once of each function or object among ``others`` that refers to one of ``modules``.

    The first of ``modules`` is the root. A function refers to a module by a variable of its
    closure or a global variable.
    """
    unchecked = [each for each in others if not _note_check(each, modules[0])]
    tree = set(map(id, modules if unchecked else ()))
    for each in unchecked:
        held = find_held_module(each, lambda module: id(module) in tree)
        if held is not None:
            is_function = isinstance(each, FunctionType)
            # The code has the function's own name, which a decorator may have replaced.
            name = each.__code__.co_qualname if is_function else type(each).__qualname__
            subject = f"The function {name}" if is_function else f"An object of class {name}"
            warnings.warn(
                f"{subject} is held by an attribute or a hook of a replicated "
                f"module and refers to {_describe(held)}. All replicas use the "
                f"original {_describe(held)} through it, not their copies. {_REMEDY}.",
                stacklevel=2,
            )


def _note_check(value: Any, root: nn.Module) -> bool:
    """Note that ``value`` is checked; return whether it was checked before."""
    key = id(value), type(value)
    was_checked = key in _checked
    try:
        _checked[key] = ref(value, lambda _: _checked.pop(key, None))
    except TypeError:  # An object with slots, or a named tuple, has no weak references.
        _checked[key] = ref(root, lambda _: _checked.pop(key, None))
    return was_checked


def device_note(replica: object, device: torch.device, arguments: object) -> str | None:
    """Return the cause of an error that tensors of ``replica`` are on different devices.

    ``device`` is that of the replica. The result is None if no cause is found.
    """
    if not isinstance(replica, nn.Module):
        return None
    tree = set(map(id, replica.modules()))

    def is_elsewhere(module: nn.Module) -> bool:
        tensors = chain(module.parameters(), module.buffers())
        return id(module) not in tree and any(tensor.device != device for tensor in tensors)

    held = find_held_module(arguments, is_elsewhere)
    if held is not None:
        return (
            f"An argument holds {_describe(held)}, which is not copied to {device}: call it "
            "outside of the forward, or make it a submodule."
        )
    for path, module in replica.named_modules():
        for name, value in _attributes(module):
            held = find_held_module(value, is_elsewhere)
            if held is not None:
                owner = f"module {path!r}" if path else "the module"
                return (
                    f"{name} of {owner} holds {_describe(held)}, which is not the copy on "
                    f"{device}. {_REMEDY}."
                )
    return None


def find_held_module(value: Any, is_wanted: Callable[[nn.Module], bool]) -> nn.Module | None:
    """Return the first wanted module that ``value`` holds in a few steps; None if there is none.

    Closures, global variables, default arguments, partials, methods, containers and attributes are
    searched.
    """
    seen: set[int] = set()
    level = [value]
    for _ in range(_DEPTH + 1):
        if len(seen) + len(level) > _MOST_OBJECTS:
            return None
        for each in level:
            if isinstance(each, nn.Module) and is_wanted(each):
                return each
        seen.update(map(id, level))
        level = [part for each in level for part in _parts(each) if id(part) not in seen]
    return None


def _parts(value: Any) -> Iterable[Any]:
    """Return the objects that ``value`` holds, without those of a module, class or tensor."""
    if isinstance(value, FunctionType):
        return (*_variables(value), *(value.__defaults__ or ()), *vars(value).values())
    if isinstance(value, MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return value
    if isinstance(value, dict):
        return chain(value, value.values())
    if isinstance(value, ref):
        return (value(),)
    if isinstance(value, (nn.Module, Tensor, type, ModuleType)):
        return ()
    # The attributes, slots or members of an object of any class, without calls of its methods.
    return gc.get_referents(value)


def _variables(function: FunctionType) -> Iterator[Any]:
    """Yield the variables of the closure, and the global variables that may call a module."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # The variable has no value yet.
            continue
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, (nn.Module, MethodType, partial)):
            yield found


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes and the hooks of ``module``, each with its name in an error."""
    for name, value in vars(module).items():
        if name in ("_modules", "_parameters", "_buffers", "_former_parameters"):
            continue
        kind = "A hook" if name.endswith("hooks") else "Attribute"
        yield f"{kind} {name!r}", value


def _describe(module: nn.Module) -> str:
    return type(module).__name__
