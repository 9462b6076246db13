"""Replicas of the modules of a tree, built around copies of their tensors.

A module of an ordinary class is *written*: its replica's ``__dict__`` is made from the module's,
which costs a fraction of what attribute assignment does. A module whose class (or which itself)
overrides how it is replicated or how attributes are set is *assigned*: its own hook makes the
replica, and its own ``__setattr__`` sees every child, parameter and buffer.

Nothing here is kept from one call to the next: modules may change in between.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from .._compat import compiled_module, is_compiled, is_registration_watched
from .compiled import give_compiled_code
from .former_parameters import FormerParameters

__all__ = ["Twins", "build_replicas"]

#: The dictionaries of hooks that every module has.
_HOOKS = tuple(
    name for name, value in nn.Module().__dict__.items() if isinstance(value, OrderedDict)
)

#: Gives a module its ``__dict__``, in place of the one that its class's ``__new__`` has left.
#: Whole, since filling the one that is there takes longer; past ``nn.Module.__setattr__``, which
#: is meant for single attributes.
_set_dict = nn.Module.__dict__["__dict__"].__set__


class Twins:
    """What stands for each member of a tree in every replica, one column a member.

    Args:
        sources: All parameters and buffers.
        rows: For each replica its copies of ``sources``.
        has_grad_buffers: Whether some copies of buffers require grad.

    Attributes:
        tensors: Columns of parameters and buffers, by the ``id`` of the source.
        modules: Columns of modules; empty at first.
        unsettled: For each replica, whether its parameters or buffers may need more than being
            put where they belong.
    """

    __slots__ = ("modules", "tensors", "unsettled")

    def __init__(
        self,
        sources: Sequence[Tensor],
        rows: Sequence[Sequence[Tensor]],
        *,
        has_grad_buffers: bool,
    ) -> None:
        # A parameter, a buffer or a child may be None; its twin in every replica is None.
        nobody = (None,) * len(rows)
        columns = zip(map(id, sources), zip(*rows, strict=True), strict=True)
        self.tensors: dict[int, Sequence[Any]] = {**dict(columns), id(None): nobody}
        self.modules: dict[nn.Module | None, Sequence[Any]] = {None: nobody}
        self.unsettled = [has_grad_buffers or {*map(type, row)} != {Tensor} for row in rows]

    def of(self, member: Any) -> Sequence[Any]:
        """Give the column of a module, a tensor, or None."""
        return self.tensors[id(member)] if isinstance(member, Tensor) else self.modules[member]


def build_replicas(
    modules: Sequence[nn.Module], twins: Twins, devices: Sequence[torch.device]
) -> None:
    """Build all replicas of ``modules``.

    Args:
        modules: All modules of a tree.
        twins: Its ``modules`` are filled; its ``tensors`` has every tensor of the tree.
        devices: Those of the replicas.
    """
    plain = {kind: _is_plain(kind) for kind in set(map(type, modules))}
    written = {module for module in modules if plain[type(module)] and not _is_odd(module)}
    indices = range(len(twins.unsettled))
    # 1. All twins are made, without `__init__`, whose arguments nobody knows.
    for module in modules:
        if module in written:
            kind = type(module)
            twins.modules[module] = [kind.__new__(kind) for _ in indices]
        else:
            twins.modules[module] = [_made_by_hook(module) for _ in indices]
    # 2. They get what belongs to them: children and owners of methods are there by now.
    for module in modules:
        (_write if module in written else _assign)(module, twins)
    # 3. Those of compiled modules run compiled code.
    give_compiled_code(modules, twins.modules.__getitem__, devices)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Tell whether modules of ``kind`` are replicated and assigned to as any module is."""
    is_plain = (
        kind._replicate_for_data_parallel is nn.Module._replicate_for_data_parallel
        and kind.__setattr__ is nn.Module.__setattr__
        and kind.__getattribute__ is object.__getattribute__
        and not is_registration_watched()
    )
    # A compiled one forwards assignments to the module that it holds, which must not see them.
    return is_plain or is_compiled(kind)


def _is_odd(module: nn.Module) -> bool:
    """Tell whether ``module`` itself is not as plain as its class."""
    # Assigning a buffer that is a parameter makes it one of the replica's parameters.
    return "_replicate_for_data_parallel" in module.__dict__ or (
        nn.Parameter in map(type, module._buffers.values())
    )


def _write(module: nn.Module, twins: Twins) -> None:
    # `_former_parameters` comes first: deepcopy needs it (see former_parameters.py).
    template = {"_former_parameters": None, **_uncompiled(module), "_is_replica": True}
    methods = _methods(template, twins)
    hooks = list(filter(template.get, _HOOKS))
    children = [(name, twins.modules[it]) for name, it in module._modules.items()]
    parameters = [(name, twins.tensors[id(it)]) for name, it in module._parameters.items()]
    buffers = [(name, twins.tensors[id(it)]) for name, it in module._buffers.items()]
    has_none = type(None) in map(type, module._parameters.values())
    for index, twin in enumerate(twins.modules[module]):
        state = template.copy()
        _set_dict(twin, state)
        # Its own dictionaries: a hook that a replica registers must not reach the module.
        for name in _HOOKS:
            state[name] = OrderedDict()
        for name in hooks:
            state[name].update(template[name])
        # Most modules lack some kind of member, and `{}` is quicker than a loop over nothing.
        state["_modules"] = {name: it[index] for name, it in children} if children else {}
        state["_buffers"] = {name: it[index] for name, it in buffers} if buffers else {}
        # Parameters must be leaves. Copies with history are none, so they are mere attributes.
        state["_parameters"] = {}
        state["_former_parameters"] = former = FormerParameters()
        for name, it in parameters:
            former[name] = state[name] = it[index]
        if has_none or twins.unsettled[index]:
            _settle_parameters(state)
        if methods:
            _rebind(state, methods, module, index)


def _uncompiled(module: nn.Module) -> dict[str, Any]:
    """Give the attributes of ``module`` without its compiled code, which has its weights."""
    state = module.__dict__
    if "_compiled_call_impl" in state:
        state = {name: value for name, value in state.items() if name != "_compiled_call_impl"}
    wrapped = compiled_module(module)
    if wrapped is not None:
        state = {**state, "forward": wrapped.__call__}
    return state


def _settle_parameters(state: dict[str, Any]) -> None:
    """Register what assignment would: copies that are parameters, and parameters that are None.

    Also tells a deepcopy of the buffers that are no leaves.
    """
    former = state["_former_parameters"]
    for name, copy in list(former.items()):
        if copy is None:
            del former[name]
        if copy is None or _is_parameter(copy):
            state["_parameters"][name] = state.pop(name)
    _note_others(state, state["_buffers"].values())


def _is_parameter(tensor: Tensor) -> bool:
    # Nearly all are plain tensors, and the metaclass of Parameter makes `isinstance` slow.
    return type(tensor) is not Tensor and isinstance(tensor, nn.Parameter)


def _methods(
    attributes: Mapping[str, Any], twins: Twins
) -> list[tuple[str, MethodType, Sequence[Any]]]:
    """Find the bound methods of the tree's modules, and these modules' twins."""
    if MethodType not in map(type, attributes.values()):
        return []
    return [
        (name, value, twins.modules[value.__self__])
        for name, value in attributes.items()
        if type(value) is MethodType
        and isinstance(value.__self__, nn.Module)
        and value.__self__ in twins.modules
    ]


def _rebind(
    state: dict[str, Any],
    methods: Iterable[tuple[str, MethodType, Sequence[Any]]],
    module: nn.Module,
    index: int,
) -> None:
    """Bind ``methods``, attributes of the replica of ``module``, to the index's modules."""
    for name, method, owners in methods:
        provided = getattr(type(module), name, None) is method.__func__
        if provided and method.__self__ is module:
            # Its class binds it as well, and does not make the replica refer to itself: a
            # replica without such cycles is freed as soon as nobody uses it.
            del state[name]
        else:
            state[name] = MethodType(method.__func__, owners[index])


def _made_by_hook(module: nn.Module) -> Any:
    twin: Any = module._replicate_for_data_parallel()  # type: ignore[no-untyped-call] # torch leaves it untyped
    twin._former_parameters = FormerParameters()
    state = twin.__dict__
    state.pop("_compiled_call_impl", None)
    # As in `_write`: dictionaries of hooks that the module has, too, become the twin's own.
    for name in _HOOKS:
        if name in state and state[name] is module.__dict__.get(name):
            state[name] = state[name].copy()
    _move_to_front(state, "_former_parameters")
    return twin


def _move_to_front(state: dict[str, Any], name: str) -> None:
    if name in state:
        rest = state.copy()
        state.clear()
        state.update({name: rest.pop(name), **rest})


def _assign(module: nn.Module, twins: Twins) -> None:
    made = twins.modules[module]
    for kind in ("_modules", "_parameters", "_buffers"):
        for name, member in getattr(module, kind).items():
            for twin, copy in zip(made, twins.of(member), strict=True):
                _assign_member(twin, kind, name, copy)
    buffers = [twins.of(buffer) for buffer in module._buffers.values()]
    for index, twin in enumerate(made):
        state = twin.__dict__
        _rebind(state, _methods(state, twins), module, index)
        _note_others(state, [column[index] for column in buffers])


def _assign_member(twin: Any, kind: str, name: str, member: nn.Module | Tensor | None) -> None:
    if member is None:
        getattr(twin, kind)[name] = None
        return
    setattr(twin, name, member)
    if kind == "_parameters":
        twin._former_parameters[name] = member


def _note_others(state: dict[str, Any], buffers: Iterable[Tensor | None]) -> None:
    others = [buffer for buffer in buffers if buffer is not None and buffer.requires_grad]
    if others:
        state["_former_parameters"].others = others
