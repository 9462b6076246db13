"""Construction of the replicas of a module tree from copies of its tensors.

The replicas of most modules are *written*: the ``__dict__`` of a replica is built from the
``__dict__`` of the module, which is several times faster than attribute assignment. If a module
overrides replication or attribute assignment, in its class or in the instance, its replicas are
*assigned*: the method ``_replicate_for_data_parallel`` of the module creates a replica, and
``__setattr__`` receives every child, parameter and buffer.

Each call of ``replicate`` builds replicas anew, because modules may change.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from types import MemberDescriptorType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ._compiled import attach_compiled_code
from ._diagnostics import warn_of_closures
from ._module_tree import has_members_outside_dict, is_script_module
from ._parameter_containers import CLASSES_OF_REPLICAS
from ._references import References
from ._torch_private import compiled_module, has_registration_hooks, is_compiled

#: The names of the dictionaries of hooks that every module has.
_HOOKS = [name for name, value in nn.Module().__dict__.items() if isinstance(value, OrderedDict)]

#: The names of the attributes that every replica has. They hold no references to modules.
_OF_EVERY_MODULE = frozenset([*nn.Module().__dict__, "_former_parameters", "_is_replica"])

#: The attributes in which PyTorch keeps names of members of a module. A forward that adds or
#: deletes members of a replica must not change those of the module.
_NAMES = ("_non_persistent_buffers_set",)
#: The same of a ``ParameterDict``.
_NAMES_IN_DICT = (*_NAMES, "_keys")

#: A function that replaces the ``__dict__`` of a module. It is faster than an update of the
#: dictionary that ``__new__`` created, and does not call ``nn.Module.__setattr__``.
_set_dict = nn.Module.__dict__["__dict__"].__set__


class ReplicaMap:
    """The replicas of each module, and the ``copies`` of the tensors ``sources``."""

    __slots__ = ("modules", "needs_registration", "tensors")

    def __init__(
        self,
        sources: Sequence[Tensor],
        copies: Sequence[Sequence[Tensor]],
        *,
        has_grad_buffers: bool,
    ) -> None:
        # A parameter, buffer or child that is None is None in all replicas.
        nones = (None,) * len(copies)
        columns = zip(map(id, sources), zip(*copies, strict=True), strict=True)
        #: For the ``id`` of each parameter and buffer, its copies.
        self.tensors: dict[int, Sequence[Any]] = {**dict(columns), id(None): nones}
        #: For each module, its replicas, which :func:`build_replicas` adds.
        self.modules: dict[nn.Module | None, Sequence[Any]] = {None: nones}
        #: For each replica, whether :func:`_register_parameters` is needed.
        self.needs_registration = [
            has_grad_buffers or {*map(type, each)} != {Tensor} for each in copies
        ]

    def find(self, member: Any) -> Sequence[Any]:
        """Return the replicas of a module, a tensor, or None."""
        return self.tensors[id(member)] if isinstance(member, Tensor) else self.modules[member]


def build_replicas(
    modules: Sequence[nn.Module],
    replica_map: ReplicaMap,
    devices: Sequence[torch.device],
    *,
    with_parameters: bool,
) -> None:
    """Build the replicas of all ``modules`` of a tree, and add them to ``replica_map``."""
    kinds = set(map(type, modules))
    plain = {kind: _is_plain(kind) for kind in kinds}
    replaced = CLASSES_OF_REPLICAS if with_parameters else {}
    creators = {kind: _creator(replaced.get(kind, kind)) for kind in kinds if plain[kind]}
    outside = set(filter(has_members_outside_dict, kinds))
    written = {
        module for module in modules if plain[type(module)] and not _needs_assignment(module)
    }
    indices = range(len(replica_map.needs_registration))
    # 1. Create all replicas. `__init__` is not called, because its arguments are unknown.
    for module in modules:
        if module in written:
            create = creators[type(module)]
            replica_map.modules[module] = [create() for _ in indices]
        else:
            replica_map.modules[module] = [
                _create_by_hook(module, with_parameters=with_parameters) for _ in indices
            ]
    # 2. Set the attributes of the replicas. An attribute may refer to any replica: all exist now.
    # On several devices a forward that uses another replica's module raises an error with a note.
    finds_objects = with_parameters and len({*devices}) < len(devices)
    references = References(replica_map.modules, replica_map.tensors, finds_objects=finds_objects)
    for module in modules:
        set_members = _write_state if module in written else _assign_members
        set_members(module, replica_map, references, with_parameters=with_parameters)
        if type(module) in outside:
            _copy_slots_and_items(module, replica_map.modules[module], references)
    # 3. Attach compiled code to the replicas of compiled modules.
    attach_compiled_code(modules, replica_map.modules.__getitem__, devices)
    if with_parameters and len(devices) > 1 and references.not_rebound:
        warn_of_closures(references.not_rebound, modules)


def _is_plain(module_class: type[nn.Module]) -> bool:
    """Return whether replicas of ``module_class`` may be written."""
    is_plain = (
        module_class._replicate_for_data_parallel is nn.Module._replicate_for_data_parallel
        and module_class.__setattr__ is nn.Module.__setattr__
        and module_class.__getattribute__ is object.__getattribute__
        and not has_registration_hooks()
    )
    # Write the `__dict__` of a replica of a compiled module, too: `setattr` would change the
    # module that is compiled.
    return is_plain or is_compiled(module_class)


def _needs_assignment(module: nn.Module) -> bool:
    """Return whether ``module`` has its own replication method, or a buffer is a Parameter."""
    # A buffer may be an `nn.Parameter`. As in torch.nn.parallel, `setattr` on the replica
    # registers it as a parameter.
    return "_replicate_for_data_parallel" in module.__dict__ or (
        nn.Parameter in map(type, module._buffers.values())
    )


def _creator(kind: type[nn.Module]) -> Callable[[], nn.Module]:
    """Return a function that creates an object of the class without ``__init__``."""
    try:
        # `__new__` of the class may need arguments, or return the module itself.
        object.__new__(kind)
    except TypeError:  # The class derives from `list`, for example.
        return partial(kind.__new__, kind)
    return partial(object.__new__, kind)


def _copy_slots_and_items(
    module: nn.Module, replicas: Sequence[Any], references: References
) -> None:
    """Copy the members of ``module`` that are not in its ``__dict__``."""
    slots = [
        each
        for base in type(module).__mro__
        for each in vars(base).values()
        if isinstance(each, MemberDescriptorType)
    ]
    for index, replica in enumerate(replicas):
        find = partial(references.in_replica, index=index)
        for slot in slots:
            with suppress(AttributeError):  # The slot has no value.
                slot.__set__(replica, find(slot.__get__(module)))
        if isinstance(module, list):
            list.extend(replica, map(find, list.__iter__(module)))
        elif isinstance(module, dict):
            dict.update(replica, {key: find(each) for key, each in dict.items(module)})


def _write_state(
    module: nn.Module, replica_map: ReplicaMap, references: References, *, with_parameters: bool
) -> None:
    """Set the ``__dict__`` of each replica of ``module``."""
    # `_former_parameters` must be the first entry for deepcopy (see `FormerParameters`).
    template = {"_former_parameters": None, **_uncompiled_state(module)}
    if not with_parameters:
        # Packages such as torchdiffeq search `__dict__` for the parameters of a marked module.
        template["_is_replica"] = True
    referring = references.find_referring(template, template.keys() - _OF_EVERY_MODULE)
    # Without `with_parameters` they are shared, as in torch.nn.parallel.
    names_of_members = _NAMES_IN_DICT if isinstance(module, nn.ParameterDict) else _NAMES
    name_collections = names_of_members if with_parameters else ()
    hooks = list(filter(template.get, _HOOKS))
    bound_hooks = [
        (name, key)
        for name in hooks
        for key in references.find_referring(template[name], template[name])
    ]
    children = [(name, replica_map.modules[child]) for name, child in module._modules.items()]
    parameters = [
        (name, replica_map.tensors[id(tensor)]) for name, tensor in module._parameters.items()
    ]
    buffers = [(name, replica_map.tensors[id(tensor)]) for name, tensor in module._buffers.items()]
    has_none = type(None) in map(type, module._parameters.values())
    for index, replica in enumerate(replica_map.modules[module]):
        state = template.copy()
        _set_dict(replica, state)
        # Each replica has its own dictionaries of hooks: a hook that is registered on a replica
        # must not be registered on the module.
        for name in _HOOKS:
            state[name] = OrderedDict()
        for name in hooks:
            state[name].update(template[name])
        for name in name_collections:
            state[name] = template[name].copy()
        # Most modules have no children or no buffers, and `{}` is faster than an empty loop.
        state["_modules"] = {name: copies[index] for name, copies in children} if children else {}
        state["_buffers"] = {name: copies[index] for name, copies in buffers} if buffers else {}
        # `register_parameter` refuses copies with history, because they are not leaves. Without
        # `with_parameters` they are plain attributes. A copy has one place: a change in another
        # place would have no effect.
        registered: dict[str, Any] = {}
        state["_parameters"] = registered
        state["_former_parameters"] = former = FormerParameters()
        members = registered if with_parameters else state
        for name, copies in parameters:
            former[name] = members[name] = copies[index]
        if has_none or replica_map.needs_registration[index]:
            _register_parameters(state)
        if referring or bound_hooks:
            _rebind(state, referring, bound_hooks, module, references, index)


def _uncompiled_state(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of ``module`` without its compiled code, which uses its weights."""
    state = module.__dict__
    if "_compiled_call_impl" in state:
        state = {name: value for name, value in state.items() if name != "_compiled_call_impl"}
    wrapped = compiled_module(module)
    if wrapped is not None:
        state = {**state, "forward": wrapped.__call__}
    return state


def _register_parameters(state: dict[str, Any]) -> None:
    """Register None, copies of the class ``nn.Parameter``, and buffers that are no leaves."""
    former, registered = state["_former_parameters"], state["_parameters"]
    for name, copy in list(former.items()):
        if copy is None:
            del former[name]
        if name not in registered and (copy is None or _is_parameter(copy)):
            registered[name] = state.pop(name)
    _set_non_leaf_buffers(state, state["_buffers"].values())


def _is_parameter(tensor: Tensor) -> bool:
    # Check the exact type first: nearly all copies are plain tensors, and `isinstance` is slow for
    # Parameter because of its metaclass.
    return type(tensor) is not Tensor and isinstance(tensor, nn.Parameter)


def _rebind(
    state: dict[str, Any],
    names: Iterable[str],
    hooks: Iterable[tuple[str, Any]],
    module: nn.Module,
    references: References,
    index: int,
) -> None:
    """Replace references to modules in ``state``, the ``__dict__`` of a replica of ``module``."""
    for name in names:
        value = state[name]
        if (
            type(value) is MethodType
            and value.__self__ is module
            and getattr(type(module), name, None) is value.__func__
        ):
            # Delete the attribute, because attribute lookup finds the method in the class. The
            # replica then does not refer to itself, and is freed without garbage collection.
            del state[name]
        else:
            state[name] = references.in_replica(value, index)
    for name, key in hooks:
        state[name][key] = references.in_replica(state[name][key], index)


def _create_by_hook(module: nn.Module, *, with_parameters: bool) -> Any:
    """Create a replica by the method ``_replicate_for_data_parallel`` of ``module``."""
    replica: Any = module._replicate_for_data_parallel()  # type: ignore[no-untyped-call] # torch leaves it untyped
    replica._former_parameters = FormerParameters()
    state = replica.__dict__
    if isinstance(module, torch.fx.GraphModule):  # Its method loses hooks and most attributes.
        for name, value in module.__dict__.items():
            if name in _HOOKS:
                state[name] = value.copy()
            elif name not in state or name == "_is_full_backward_hook":
                state[name] = value
    state.pop("_compiled_call_impl", None)
    # The method may keep the parameters, as that of `torch.fx.GraphModule` does. Without them, an
    # assignment of a copy sets an attribute.
    if type(state.get("_parameters")) is dict:
        kept = state["_parameters"].items()
        state["_parameters"] = {name: own for name, own in kept if name not in module._parameters}
    # As in `_write_state`, each replica has its own dictionaries of hooks and, perhaps, names.
    names_of_members = _NAMES_IN_DICT if isinstance(module, nn.ParameterDict) else _NAMES
    for name in (*_HOOKS, *(names_of_members if with_parameters else ())):
        if name in state and state[name] is module.__dict__.get(name):
            state[name] = state[name].copy()
    if "_former_parameters" in state:  # Move it to the front, as in `_write_state`.
        others = state.copy()
        state.clear()
        state.update({"_former_parameters": others.pop("_former_parameters"), **others})
    return replica


def _assign_members(
    module: nn.Module, replica_map: ReplicaMap, references: References, *, with_parameters: bool
) -> None:
    """Assign the children, parameters and buffers of each replica of ``module``."""
    replicas = replica_map.modules[module]
    for registry in ("_modules", "_parameters", "_buffers"):
        for name, member in getattr(module, registry).items():
            for replica, copy in zip(replicas, replica_map.find(member), strict=True):
                _assign_member(replica, registry, name, copy)
    buffers = [replica_map.find(buffer) for buffer in module._buffers.values()]
    for index, replica in enumerate(replicas):
        state = replica.__dict__
        hooks = [
            (name, key)
            for name in _HOOKS
            for key in references.find_referring(state.get(name, {}), state.get(name, {}))
        ]
        referring = references.find_referring(state, state.keys() - _OF_EVERY_MODULE)
        _rebind(state, referring, hooks, module, references, index)
        _set_non_leaf_buffers(state, [column[index] for column in buffers])
        if with_parameters:
            _move_parameters(state, module)
            if is_script_module(replica):
                # An assignment of a child has not listed it, so `parameters` would not find it.
                for name, child in module._modules.items():
                    if child is not None:
                        replica._modules[name] = replica_map.modules[child][index]


def _move_parameters(state: dict[str, Any], module: nn.Module) -> None:
    """Move the copies of parameters to ``_parameters``, in the order of those of ``module``."""
    if "_is_replica" not in module.__dict__:  # See `_write_state`.
        state.pop("_is_replica", None)
    registered = state.get("_parameters")
    if type(registered) is not dict:  # A script module has no dictionary.
        return
    copies = {**registered, **state["_former_parameters"]}
    names = {**module._parameters, **registered}
    state["_parameters"] = {name: copies[name] for name in names if name in copies}
    for name, copy in state["_former_parameters"].items():
        if state.get(name) is copy:
            del state[name]


def _assign_member(
    replica: Any, registry: str, name: str, member: nn.Module | Tensor | None
) -> None:
    if member is None:
        getattr(replica, registry)[name] = None
        return
    setattr(replica, name, member)
    if registry == "_parameters":
        replica._former_parameters[name] = member


def _set_non_leaf_buffers(state: dict[str, Any], buffers: Iterable[Tensor | None]) -> None:
    """Record the buffers that require grad, for the deepcopy of a replica with this ``state``."""
    with_grad = [buffer for buffer in buffers if buffer is not None and buffer.requires_grad]
    if with_grad:
        state["_former_parameters"].non_leaf_buffers = with_grad


# The mapping ``_former_parameters`` of a replica, which makes the replica deepcopyable.


class FormerParameters(OrderedDict[str, Tensor]):
    """The copies of a module's parameters in a replica, by name.

    The tensors of a replica are not leaves of the autograd graph, and ``deepcopy`` fails for such
    tensors. This mapping makes the replica deepcopyable. It is the first entry of the replica's
    ``__dict__``, so ``deepcopy`` copies it first. Its ``__deepcopy__`` adds detached clones of
    the tensors to the memo of the deepcopy. Shared tensors stay shared. Modules with their own
    ``__deepcopy__``, for example parametrized ones, can be deepcopied, too.

    The mapping is pickled as a plain ordered dictionary, so that a saved replica can be loaded
    without this package.
    """

    #: The replica's buffers that require grad, which are not leaves either.
    non_leaf_buffers: Sequence[Tensor] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[str, Tensor]:
        for tensor in self.values():
            if id(tensor) not in memo and type(tensor) is Tensor:
                # Methods of the deepcopy, such as `to`, need the class of parameters.
                memo[id(tensor)] = nn.Parameter(tensor.detach().clone(), tensor.requires_grad)
        for tensor in (*self.values(), *self.non_leaf_buffers):
            if id(tensor) not in memo and not tensor.is_leaf:
                clone = torch.clone(tensor.detach())
                memo[id(tensor)] = clone.requires_grad_(tensor.requires_grad)
        return OrderedDict((name, deepcopy(tensor, memo)) for name, tensor in self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())
