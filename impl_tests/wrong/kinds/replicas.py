"""Kinds that change the structure of the modules in a result."""

import copy
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn

from impl_tests.wrong.calls import Call, modules_in
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.replica_tensors import buffers_of, change_into

__all__ = ["KINDS"]

KINDS = Registry()
change = change_into(KINDS)


def _of_source(change: Callable[[nn.Module, nn.Module], object]) -> None:
    """Register a change of each submodule in the result, given that of the call's module."""

    def run(call: Call) -> Any:
        result = call.run()
        sources = [member for module in call.modules() for member in module.modules()]
        for replica in modules_in(result):
            for member, source in zip(list(replica.modules()), sources, strict=False):
                try:
                    change(member, source)
                except Exception:  # this module cannot be changed in this way
                    continue
        return result

    KINDS[f"replicas-{change.__name__.replace('_', '-')}-of-source"] = run


@change
def switched(module: nn.Module) -> None:
    """Switch between train and eval."""
    module.training = not module.training


@change
def without_buffers(module: nn.Module) -> None:
    """Remove the buffers."""
    module._buffers.clear()


@change
def with_cloned_buffers(module: nn.Module) -> None:
    """Clone the buffers."""
    for name, buffer in module._buffers.items():
        module._buffers[name] = buffer if buffer is None else buffer.clone()


@change
def with_changed_buffers(module: nn.Module) -> None:
    """Change the values of buffers."""
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = buffer * 2 + 1


@change
def with_detached_buffers(module: nn.Module) -> None:
    """Detach the buffers."""
    for members, name, buffer in buffers_of(module):
        members[name] = buffer.detach()


@change
def with_buffers_requiring_grad(module: nn.Module) -> None:
    """Make the buffers require a gradient."""
    for members, name, buffer in buffers_of(module):
        members[name] = buffer.detach().requires_grad_()


@change
def without_hooks(module: nn.Module) -> None:
    """Remove the hooks."""
    for name, value in vars(module).items():
        if name.endswith("_hooks"):
            value.clear()


@change
def with_children_in_reverse(module: nn.Module) -> None:
    """Reverse the order of the submodules."""
    items = list(module._modules.items())[::-1]
    module._modules.clear()
    module._modules.update(items)


@change
def without_none_members(module: nn.Module) -> None:
    """Remove the members that are None."""
    for members in (module._modules, module._parameters, module._buffers):
        for name in [name for name, value in members.items() if value is None]:
            del members[name]


@change
def without_attributes(module: nn.Module) -> None:
    """Remove the attributes that are neither tensors nor private."""
    for name, value in list(vars(module).items()):
        if not name.startswith("_") and name != "training" and not isinstance(value, Tensor):
            delattr(module, name)


@change
def with_copied_children(module: nn.Module) -> None:
    """Copy the submodules, so that shared ones become separate."""
    for name, child in module._modules.items():
        module._modules[name] = child if child is None else copy.copy(child)


@change
def unmarked(module: nn.Module) -> None:
    """Remove the mark of replicas."""
    vars(module)["_is_replica"] = False


@change
def with_attributes_of_new(module: nn.Module) -> None:
    """Keep the attributes that ``__new__`` of the class sets."""
    kind = type(module)
    for name, value in vars(kind.__new__(kind)).items():
        vars(module).setdefault(name, value)


@change
def with_a_lock(module: nn.Module) -> None:
    """Add an attribute that cannot be copied or pickled."""
    vars(module)["perturbed"] = threading.Lock()


@change
def deepcopied_by_reference(module: nn.Module) -> None:
    """Make a deep copy of the module the module itself."""
    vars(module)["__deepcopy__"] = lambda memo: module


@change
def without_compiled_code(module: nn.Module) -> None:
    """Run the code of the module as it is, not compiled."""
    vars(module)["_compiled_call_impl"] = None


@change
def kept(module: nn.Module) -> None:
    """Keep a reference."""
    _KEPT.append(module)


_KEPT: list[nn.Module] = []


@_of_source
def with_buffers(module: nn.Module, source: nn.Module) -> None:
    """Share the buffers."""
    module._buffers.update(source._buffers)


@_of_source
def with_dictionaries(module: nn.Module, source: nn.Module) -> None:
    """Share the dictionary of submodules."""
    vars(module)["_modules"] = source._modules


@_of_source
def with_hooks(module: nn.Module, source: nn.Module) -> None:
    """Share the dictionaries of hooks."""
    for name, value in vars(source).items():
        if name.endswith("_hooks"):
            vars(module)[name] = value


@_of_source
def with_methods(module: nn.Module, source: nn.Module) -> None:
    """Share the bound methods among the attributes."""
    vars(module).update({k: v for k, v in vars(source).items() if isinstance(v, MethodType)})


@_of_source
def with_slots(module: nn.Module, source: nn.Module) -> None:
    """Copy the attributes outside the module's dictionary."""
    for name in getattr(type(source), "__slots__", ()):
        setattr(module, name, getattr(source, name))


def _ignore_override(kind_name: str, method: str) -> None:
    """Register a kind that uses a method of ``nn.Module``, also if a class overrides it."""

    def run(call: Call) -> Any:
        kinds = {type(member) for module in call.modules() for member in module.modules()}
        own = {kind: vars(kind)[method] for kind in kinds if method in vars(kind)}
        for kind in own:
            setattr(kind, method, getattr(nn.Module, method))
        try:
            return call.run()
        finally:
            for kind, override in own.items():
                setattr(kind, method, override)

    KINDS[kind_name] = run


_ignore_override("replicas-by-the-base-class", "_replicate_for_data_parallel")
_ignore_override("setattr-of-the-base-class", "__setattr__")
