"""The facts of the modules in an argument, and of a ``DataParallel``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.wrong import tensor_facts
from impl_tests.wrong.calls import modules_in

__all__ = ["DERIVED", "NAMES", "WRAPPER", "facts_of_module", "facts_of_wrapper"]


@dataclass(frozen=True)
class _Tree:
    """A module with its submodules and tensors."""

    root: nn.Module
    modules: Sequence[nn.Module]
    parameters: Sequence[Tensor]
    buffers: Sequence[Tensor]

    def any(self, holds: Callable[[nn.Module], object]) -> bool:
        """Return whether a function holds for a module of the tree."""
        return any(holds(module) for module in self.modules)

    def members(self, *kinds: str) -> list[Any]:
        """Return the submodules, parameters or buffers that all modules name."""
        # A script module has no such entry in its dictionary, but an attribute.
        owners = [getattr(module, kind) for module in self.modules for kind in kinds]
        return [member for owner in owners for member in owner.values()]


_MODULE: dict[str, Callable[[_Tree], bool]] = {
    "eval": lambda tree: not tree.root.training,
    "training": lambda tree: tree.root.training,
    "children": lambda tree: len(tree.modules) > 1,
    "module-no-parameters": lambda tree: not tree.parameters,
    "module-frozen": lambda tree: any(not p.requires_grad for p in tree.parameters),
    "module-hooks": lambda tree: tree.any(_has_hooks),
    "module-script": lambda tree: tree.any(lambda m: isinstance(m, torch.jit.ScriptModule)),
    "module-compiled": lambda tree: tree.any(
        lambda m: vars(m).get("_compiled_call_impl") or type(m).__name__ == "OptimizedModule"
    ),
    "module-recurrent": lambda tree: tree.any(lambda m: isinstance(m, nn.RNNBase)),
    "module-batch-norm": lambda tree: tree.any(
        lambda m: isinstance(m, nn.modules.batchnorm._BatchNorm)
    ),
    "module-parametrized": lambda tree: tree.any(lambda m: hasattr(m, "parametrizations")),
    "module-shared-child": lambda tree: (
        len(tree.modules) <= len([m for m in tree.members("_modules") if m])
    ),
    "module-tied": lambda tree: len(tree.parameters) < len(tree.members("_parameters")),
    "module-none-members": lambda tree: any(
        m is None for m in tree.members("_modules", "_parameters", "_buffers")
    ),
    "module-wrapper": lambda tree: tree.any(lambda m: type(m).__name__ == "DataParallel"),
    "module-lists": lambda tree: tree.any(
        lambda m: isinstance(m, (nn.ParameterList, nn.ParameterDict))
    ),
    "module-graph": lambda tree: tree.any(lambda m: isinstance(m, torch.fx.GraphModule)),
    "module-linear": lambda tree: type(tree.root) is nn.Linear,
    "module-embedding": lambda tree: tree.any(lambda m: isinstance(m, nn.Embedding)),
    "module-observer": lambda tree: tree.any(lambda m: type(m).__name__.endswith("Observer")),
    "module-attributes": lambda tree: tree.any(_has_attributes),
    "module-mixed-modes": lambda tree: len({m.training for m in tree.modules}) > 1,
}
#: The facts of the attributes of a ``DataParallel``.
WRAPPER: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "no-devices": lambda attributes: len(_devices(attributes)) == 0,
    "one-device": lambda attributes: len(_devices(attributes)) == 1,
    "repeated": lambda attributes: len(set(_devices(attributes))) < len(_devices(attributes)),
    "on-cpu": lambda attributes: any(text.startswith("cpu") for text in _devices(attributes)),
    "eval": lambda attributes: not attributes.get("training", True),
}
#: The fact of a ``DataParallel`` of a derived class.
DERIVED = "derived"
#: The names of all facts of modules.
NAMES = frozenset(
    {*_MODULE, *(f"{k}-{fact}" for k in ("parameter", "buffer") for fact in tensor_facts.NAMES)}
)


def facts_of_module(module: nn.Module) -> Iterator[str]:
    """Yield facts of a module, its submodules and its tensors."""
    try:
        tensors = list(module.parameters()), list(module.buffers())
        tree = _Tree(module, list(module.modules()), *tensors)
    except Exception:  # a module may be incomplete
        return
    yield from (fact for fact, holds in _MODULE.items() if holds(tree))
    for kind, found in (("parameter", tree.parameters), ("buffer", tree.buffers)):
        if found:
            yield from (f"{kind}-{fact}" for fact in tensor_facts.facts_of_tensors(found))


def facts_of_wrapper(wrapper: nn.Module) -> Iterator[str]:
    """Yield facts of a ``DataParallel``, and of the module that it wraps."""
    attributes = vars(wrapper)
    if "_modules" not in attributes:
        return  # a call of __init__
    yield from (fact for fact, holds in WRAPPER.items() if holds(attributes))
    if type(wrapper).__name__ != "DataParallel":
        yield DERIVED
    for module in modules_in(attributes["_modules"].get("module")):
        yield from facts_of_module(module)


def _devices(attributes: Mapping[str, Any]) -> list[str]:
    return [str(device) for device in attributes.get("device_ids", ())]


def _has_hooks(module: nn.Module) -> bool:
    return any(value for name, value in vars(module).items() if name.endswith("_hooks"))


def _has_attributes(module: nn.Module) -> bool:
    """Return whether a module has a tensor or a function as a plain attribute."""
    return any(
        isinstance(value, Tensor) or callable(value)
        for name, value in vars(module).items()
        if not name.startswith("_")
    )
