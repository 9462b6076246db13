"""The state of a module, and detection of changes to it.

The state is stored as flat lists, so that a check compares whole lists. Only if the lists differ,
the changed module or tensor is searched for.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from .._compat import version_counters

#: The name of each module of a tree, and the module. The root is first.
NamedModules = Sequence[tuple[str, nn.Module]]
#: Three lists with an entry for each tensor: its ``id``, its version counter, its address.
States = tuple[list[int], list[object], list[Any]]
#: A tuple for one module: its training flag; the name and id of each child; the name and id of
#: each parameter; the name of each buffer, and whether it is None.
_Structure = tuple[Any, ...]
#: For each index in ``_Structure``: the name of the members at this index in error messages.
_KINDS = {1: "modules", 2: "parameters", 3: "buffers"}


class ModuleSnapshot:
    """The state of a module at the time when its replicas were built."""

    def __init__(self, root: nn.Module) -> None:
        self.named_modules: NamedModules = [*root.named_modules()]
        self._modules = [module for _, module in self.named_modules]
        self._flat_structure = _flat_structure(self._modules)
        self._structures = [*map(_structure, self._modules)]
        # Keep references to all parameters, so that no other object can get the same `id`.
        self._parameters = [
            (_join_names(prefix, name), parameter)
            for prefix, module in self.named_modules
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
        # Changes of inference tensors cannot be detected, because these have no version counter.
        self._names = [name for name, tensor in self._parameters if not tensor.is_inference()]
        self._versioned = [tensor for _, tensor in self._parameters if not tensor.is_inference()]
        self._states = read_states(self._versioned)
        self._stepped: list[str] = []  # The names of parameters that an optimizer has changed.

    def note_step(self, changed: Sequence[Tensor]) -> None:
        """Note that an optimizer has changed the tensors in ``changed``.

        Fused optimizers increase no version counter.
        """
        memory = set(map(memory_of, changed))
        self._stepped += [name for name, tensor in self._parameters if memory_of(tensor) in memory]

    def check(self, root: nn.Module) -> None:
        """Raise RuntimeError if ``root`` has changed, except for the values of its buffers."""
        if root is not self._modules[0]:
            raise change_error("the module is another one")
        if _flat_structure(self._modules) != self._flat_structure:
            raise change_error(self._describe_structure_change())
        states = read_states(self._versioned)
        if states != self._states:
            index = min(differing_indices(states, self._states))
            raise change_error(f"parameter {self._names[index]!r} has changed")
        if self._stepped:
            raise change_error(f"parameter {self._stepped[0]!r} has changed")

    def _describe_structure_change(self) -> str:
        """Describe the change in the first module whose structure has changed."""
        structures = map(_structure, self._modules)
        pairs = zip(self.named_modules, structures, self._structures, strict=True)
        (name, _), now, then = next(each for each in pairs if each[1] != each[2])
        if now[0] != then[0]:
            where = f"module {name!r}" if name else "the module"
            return f"{where} has been switched to {'train' if now[0] else 'eval'}()"
        kind = next(index for index in _KINDS if now[index] != then[index])
        new, old = dict(now[kind]), dict(then[kind])
        changed = [key for key in {**old, **new} if new.get(key) != old.get(key)]
        listed = ", ".join(repr(_join_names(name, key)) for key in changed or new)
        return f"there are other {_KINDS[kind]}, {listed},"


def _flat_structure(modules: Sequence[nn.Module]) -> list[Any]:
    """Return the training modes and the members of all modules, without the values of buffers.

    Unlike results of :func:`_structure`, the result does not show which module has changed.
    """
    found: list[Any] = [[module.training for module in modules]]
    for kind in ("_modules", "_parameters"):
        found += flat_members([*map(attrgetter(kind), modules)])
    return found + flat_buffers([module._buffers for module in modules])


def flat_members(each: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the number and names of the members of each module, and the ids of the members."""
    return [*_flat_names(each), [*map(id, _flat_values(each))]]


def flat_buffers(each: Sequence[Mapping[str, Tensor | None]]) -> list[list[Any]]:
    """Return the number and names of the buffers of each module, and which of them are None."""
    return [*_flat_names(each), [buffer is None for buffer in _flat_values(each)]]


def _flat_names(each: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    names = chain.from_iterable(members.keys() for members in each if members)
    return [[*map(len, each)], [*names]]


def _flat_values(each: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [*chain.from_iterable(members.values() for members in each if members)]


def _structure(module: nn.Module) -> _Structure:
    """Return one module's training mode and members, without the values of buffers."""
    children, parameters, buffers = module._modules, module._parameters, module._buffers
    return (
        module.training,
        [(name, id(child)) for name, child in children.items()],
        [(name, id(parameter)) for name, parameter in parameters.items()],
        [(name, buffer is None) for name, buffer in buffers.items()],
    )


def read_states(tensors: Sequence[Tensor | None]) -> States:
    """Return the ids, version counters and addresses of ``tensors``.

    Comparing two results shows which tensors were replaced, changed in place, or given other
    memory.
    """
    return [*map(id, tensors)], version_counters(tensors), _read_addresses(tensors)


def _read_addresses(tensors: Sequence[Tensor | None]) -> list[Any]:
    try:
        return [*map(Tensor.data_ptr, tensors)]  # type: ignore[arg-type] # None raises TypeError
    except (RuntimeError, TypeError):  # A tensor is None, or is sparse and has no address.
        return [
            None if tensor is None or tensor.layout is not torch.strided else tensor.data_ptr()
            for tensor in tensors
        ]


def memory_of(tensor: Tensor) -> object:
    """Return a key that is equal for tensors that share a storage."""
    try:
        address = tensor.untyped_storage().data_ptr()
    except RuntimeError:  # A sparse tensor, or one of a class without a storage.
        address = 0
    return (tensor.device, address) if address else id(tensor)


def differing_indices(states: States, other_states: States) -> set[int]:
    """Return the indices of the tensors whose states differ."""
    columns = zip(zip(*states, strict=True), zip(*other_states, strict=True), strict=True)
    return {index for index, (new, old) in enumerate(columns) if new != old}


def _join_names(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def change_error(change: str) -> RuntimeError:
    """Return an error that names ``change``."""
    return RuntimeError(
        f"{change[0].upper()}{change[1:]} since hold() built its replicas: leave "
        "the block and enter a new one to rebuild them"
    )
