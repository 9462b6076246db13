"""Kinds that change the modules in a result, or the ``DataParallel`` that a constructor makes."""

import copy
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from impl_tests.weekly.perturbations.calls import Call, modules_in
from impl_tests.weekly.perturbations.kinds.registry import OPERATORS, add, around, with_word

#: A dictionary, the name of a tensor in it, and the tensor.
_Entry = tuple[dict[str, Any], str, Tensor]


def _parameters_of(module: nn.Module) -> list[_Entry]:
    """Return the parameters of a replica, which may be parameters or plain attributes."""
    owners: list[dict[str, Any]] = [module._parameters, vars(module)]
    return [(own, k, v) for own in owners for k, v in own.items() if isinstance(v, Tensor)]


def _buffers_of(module: nn.Module) -> list[_Entry]:
    return [(module._buffers, k, v) for k, v in module._buffers.items() if v is not None]


@with_word
def parameters(call: Call, operator: str) -> Any:
    """Change each parameter of the replicas by a kind for tensors."""
    return _change_tensors(call, _parameters_of, OPERATORS[operator])


@with_word
def buffers(call: Call, operator: str) -> Any:
    """Change each buffer of the replicas by a kind for tensors."""
    return _change_tensors(call, _buffers_of, OPERATORS[operator])


def _change_tensors(
    call: Call, entries: Callable[[nn.Module], list[_Entry]], change: Callable[[Tensor], Tensor]
) -> Any:
    def change_module(module: nn.Module) -> None:
        for owner, name, tensor in entries(module):
            owner[name] = change(tensor)

    return _change_replicas(call, change_module)


def _change_replicas(call: Call, change: Callable[[nn.Module], object]) -> Any:
    """Change each module of the result; return the result. A script module stays as it is."""
    result = call.run()
    for replica in modules_in(result):
        for member in list(replica.modules()):
            try:
                change(member)
            except Exception:  # this module cannot be changed in this way
                continue
    return result


def _of_replicas(change: Callable[[nn.Module], object]) -> None:
    """Add a change of each module and submodule in the result."""
    add(change, lambda call, word: _change_replicas(call, change), "replicas-")


@_of_replicas
def switched(module: nn.Module) -> None:
    """Switch between train and eval."""
    module.training = not module.training


@_of_replicas
def without_hooks(module: nn.Module) -> None:
    """Remove the hooks."""
    for name, value in vars(module).items():
        if name.endswith("_hooks"):
            value.clear()


@_of_replicas
def with_other_children(module: nn.Module) -> None:
    """Copy the submodules and reverse their order; leave out members that are None."""
    children = [(name, copy.copy(child)) for name, child in module._modules.items() if child]
    module._modules.clear()
    module._modules.update(reversed(children))
    for members in (module._parameters, module._buffers):
        for name in [name for name, value in members.items() if value is None]:
            del members[name]


@around
def replicas_sharing_entries(call: Call) -> Any:
    """Share the hooks, the buffers and the attributes of the modules."""
    result = call.run()
    sources = [member for module in call.modules() for member in module.modules()]
    for replica in modules_in(result):
        for member, source in zip(list(replica.modules()), sources, strict=False):
            for name, value in vars(source).items():
                if name not in ("_modules", "_parameters"):
                    vars(member)[name] = value
            for name in getattr(type(source), "__slots__", ()):
                setattr(member, name, getattr(source, name))
    return result


@around
def not_copyable(call: Call) -> Any:
    """Add a lock, which cannot be copied or pickled, to the replicas or to the wrapper."""
    result = call.run()
    for module in [*modules_in(result), *modules_in(call.arguments.get("self"))]:
        vars(module)["perturbed"] = threading.Lock()
    return result


@around
def wrapper_with_members(call: Call) -> Any:
    """Add a child to the wrapper, and the parameters of its module as attributes."""
    result, wrapper = call.run(), call.arguments["self"]
    vars(wrapper).update(wrapper.module.named_parameters(recurse=False))
    wrapper.add_module("perturbed", nn.Linear(1, 1))
    return result
