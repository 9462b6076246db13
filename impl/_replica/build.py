"""Replicas of a module tree, built around copies of its tensors.

Most modules are *written*: the ``__dict__`` of the replica is built from that of the module, which
costs a fraction of attribute assignment. A module that overrides replication or attribute
assignment, in its class or in the instance, is *assigned*: its hook creates the replica, and its
``__setattr__`` receives every child, parameter and buffer.

Nothing is cached between calls, since modules may change.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from .._compat import compiled_module, has_registration_hooks, is_compiled
from .compiled import attach_compiled_code
from .former_parameters import FormerParameters

#: The names of the hook dictionaries that every module has.
_HOOKS = tuple(
    name for name, value in nn.Module().__dict__.items() if isinstance(value, OrderedDict)
)

#: Replaces the ``__dict__`` of a module. It is faster than an update of the dictionary that
#: ``__new__`` created, and does not call ``nn.Module.__setattr__``.
_set_dict = nn.Module.__dict__["__dict__"].__set__


class ReplicaMap:
    """A mapping from each module and tensor of a tree to its replicas.

    Args:
        sources: All parameters and buffers.
        rows: For each replica its copies of ``sources``.
        has_grad_buffers: Whether some copies of buffers require grad.

    Attributes:
        tensors: The copies of each parameter and buffer, by the ``id`` of the source.
        modules: The replicas of each module; empty at first.
        needs_registration: For each replica, whether some of its parameters or buffers may have
            to be registered.
    """

    __slots__ = ("modules", "needs_registration", "tensors")

    def __init__(
        self,
        sources: Sequence[Tensor],
        rows: Sequence[Sequence[Tensor]],
        *,
        has_grad_buffers: bool,
    ) -> None:
        # A parameter, a buffer or a child may be None.
        nones = (None,) * len(rows)
        columns = zip(map(id, sources), zip(*rows, strict=True), strict=True)
        self.tensors: dict[int, Sequence[Any]] = {**dict(columns), id(None): nones}
        self.modules: dict[nn.Module | None, Sequence[Any]] = {None: nones}
        self.needs_registration = [
            has_grad_buffers or {*map(type, row)} != {Tensor} for row in rows
        ]

    def find(self, member: Any) -> Sequence[Any]:
        """Return the replicas of a module, a tensor, or None."""
        return self.tensors[id(member)] if isinstance(member, Tensor) else self.modules[member]


def build_replicas(
    modules: Sequence[nn.Module], replica_map: ReplicaMap, devices: Sequence[torch.device]
) -> None:
    """Build all replicas of ``modules``.

    Args:
        modules: All modules of a tree.
        replica_map: A map with every tensor of the tree. Its ``modules`` are filled.
        devices: The device of each replica.
    """
    plain = {kind: _is_plain(kind) for kind in set(map(type, modules))}
    written = {
        module for module in modules if plain[type(module)] and not _overrides_replication(module)
    }
    indices = range(len(replica_map.needs_registration))
    # 1. Create all replicas, without `__init__`, whose arguments are unknown.
    for module in modules:
        if module in written:
            kind = type(module)
            replica_map.modules[module] = [kind.__new__(kind) for _ in indices]
        else:
            replica_map.modules[module] = [_create_by_hook(module) for _ in indices]
    # 2. Fill the replicas: their children and the owners of their methods now exist.
    for module in modules:
        (_write_state if module in written else _assign_members)(module, replica_map)
    # 3. Attach compiled code to the replicas of compiled modules.
    attach_compiled_code(modules, replica_map.modules.__getitem__, devices)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Return whether ``kind`` overrides neither replication nor attribute access."""
    is_plain = (
        kind._replicate_for_data_parallel is nn.Module._replicate_for_data_parallel
        and kind.__setattr__ is nn.Module.__setattr__
        and kind.__getattribute__ is object.__getattribute__
        and not has_registration_hooks()
    )
    # A compiled module forwards assignments to the module that it wraps: never assign to it.
    return is_plain or is_compiled(kind)


def _overrides_replication(module: nn.Module) -> bool:
    """Return whether ``module`` itself overrides replication, or needs attribute assignment."""
    # Assignment turns a buffer that is a parameter into a parameter of the replica.
    return "_replicate_for_data_parallel" in module.__dict__ or (
        nn.Parameter in map(type, module._buffers.values())
    )


def _write_state(module: nn.Module, replica_map: ReplicaMap) -> None:
    # `_former_parameters` comes first for deepcopy (see former_parameters.py).
    template = {"_former_parameters": None, **_uncompiled_state(module), "_is_replica": True}
    methods = _find_bound_methods(template, replica_map)
    hooks = list(filter(template.get, _HOOKS))
    children = [(name, replica_map.modules[child]) for name, child in module._modules.items()]
    parameters = [
        (name, replica_map.tensors[id(tensor)]) for name, tensor in module._parameters.items()
    ]
    buffers = [(name, replica_map.tensors[id(tensor)]) for name, tensor in module._buffers.items()]
    has_none = type(None) in map(type, module._parameters.values())
    for index, replica in enumerate(replica_map.modules[module]):
        state = template.copy()
        _set_dict(replica, state)
        # New dictionaries: a hook that is registered on a replica must not reach the module.
        for name in _HOOKS:
            state[name] = OrderedDict()
        for name in hooks:
            state[name].update(template[name])
        # Most modules lack some kind of member, and `{}` is faster than an empty loop.
        state["_modules"] = {name: copies[index] for name, copies in children} if children else {}
        state["_buffers"] = {name: copies[index] for name, copies in buffers} if buffers else {}
        # Parameters must be leaves. Copies with history are not, so they are plain attributes.
        state["_parameters"] = {}
        state["_former_parameters"] = former = FormerParameters()
        for name, copies in parameters:
            former[name] = state[name] = copies[index]
        if has_none or replica_map.needs_registration[index]:
            _register_parameters(state)
        if methods:
            _bind_methods(state, methods, module, index)


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
    """Register the parameters that assignment would: copies that are parameters, and None.

    Record the buffers that are not leaves, for deepcopy.
    """
    former = state["_former_parameters"]
    for name, copy in list(former.items()):
        if copy is None:
            del former[name]
        if copy is None or _is_parameter(copy):
            state["_parameters"][name] = state.pop(name)
    _set_non_leaf_buffers(state, state["_buffers"].values())


def _is_parameter(tensor: Tensor) -> bool:
    # Nearly all copies are plain tensors, and the metaclass of Parameter makes `isinstance` slow.
    return type(tensor) is not Tensor and isinstance(tensor, nn.Parameter)


def _find_bound_methods(
    attributes: Mapping[str, Any], replica_map: ReplicaMap
) -> list[tuple[str, MethodType, Sequence[Any]]]:
    """Return the attributes that are methods of the tree's modules, with the owners' replicas."""
    if MethodType not in map(type, attributes.values()):
        return []
    return [
        (name, value, replica_map.modules[value.__self__])
        for name, value in attributes.items()
        if type(value) is MethodType
        and isinstance(value.__self__, nn.Module)
        and value.__self__ in replica_map.modules
    ]


def _bind_methods(
    state: dict[str, Any],
    methods: Iterable[tuple[str, MethodType, Sequence[Any]]],
    module: nn.Module,
    index: int,
) -> None:
    """Bind ``methods`` in the state of a replica of ``module`` to the owners' replicas."""
    for name, method, owners in methods:
        is_inherited = getattr(type(module), name, None) is method.__func__
        if is_inherited and method.__self__ is module:
            # Attribute lookup binds the method of the class anyway. Without the attribute the
            # replica does not refer to itself, so that it is freed without garbage collection.
            del state[name]
        else:
            state[name] = MethodType(method.__func__, owners[index])


def _create_by_hook(module: nn.Module) -> Any:
    replica: Any = module._replicate_for_data_parallel()  # type: ignore[no-untyped-call] # torch leaves it untyped
    replica._former_parameters = FormerParameters()
    state = replica.__dict__
    state.pop("_compiled_call_impl", None)
    # As in `_write_state`, a replica has its own hook dictionaries.
    for name in _HOOKS:
        if name in state and state[name] is module.__dict__.get(name):
            state[name] = state[name].copy()
    if "_former_parameters" in state:  # It comes first, as in `_write_state`.
        others = state.copy()
        state.clear()
        state.update({"_former_parameters": others.pop("_former_parameters"), **others})
    return replica


def _assign_members(module: nn.Module, replica_map: ReplicaMap) -> None:
    replicas = replica_map.modules[module]
    for kind in ("_modules", "_parameters", "_buffers"):
        for name, member in getattr(module, kind).items():
            for replica, copy in zip(replicas, replica_map.find(member), strict=True):
                _assign_member(replica, kind, name, copy)
    buffers = [replica_map.find(buffer) for buffer in module._buffers.values()]
    for index, replica in enumerate(replicas):
        state = replica.__dict__
        _bind_methods(state, _find_bound_methods(state, replica_map), module, index)
        _set_non_leaf_buffers(state, [column[index] for column in buffers])


def _assign_member(replica: Any, kind: str, name: str, member: nn.Module | Tensor | None) -> None:
    if member is None:
        getattr(replica, kind)[name] = None
        return
    setattr(replica, name, member)
    if kind == "_parameters":
        replica._former_parameters[name] = member


def _set_non_leaf_buffers(state: dict[str, Any], buffers: Iterable[Tensor | None]) -> None:
    found = [buffer for buffer in buffers if buffer is not None and buffer.requires_grad]
    if found:
        state["_former_parameters"].non_leaf_buffers = found
