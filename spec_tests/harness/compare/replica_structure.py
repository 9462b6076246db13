"""The structure of a replica as plain data.

Hook dictionaries and bound methods in attributes are left out: see divergences RE-3 and RE-2.
"""

from collections.abc import Iterator
from types import MethodType
from typing import Any

from torch import Tensor, nn

#: Attributes that hold a module's tensors and children, and attributes that only replicas have.
_STATE = ("_parameters", "_buffers", "_modules", "_is_replica", "_former_parameters")
_MISSING = object()


def replica_structure(replica: nn.Module, source: nn.Module) -> dict[str, Any]:
    """Return a description of every module of ``replica`` by path; a shared one appears twice."""
    first: dict[int, str] = {}
    pairs = _pairs(replica, source, "module")
    return {
        path: _module_structure(module, original, path, first) for path, module, original in pairs
    }


def _pairs(
    replica: nn.Module, source: nn.Module, path: str
) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    yield path, replica, source
    for name, child in source._modules.items():
        copy = replica._modules.get(name)
        if child is not None and copy is not None:
            yield from _pairs(copy, child, f"{path}.{name}")


def _module_structure(
    module: nn.Module, source: nn.Module, path: str, first: dict[int, str]
) -> dict[str, Any]:
    tensors = {name: getattr(module, name, None) for name in source._parameters}
    buffers = dict(module._buffers)
    found = {path: module} | {f"{path}.{k}": v for k, v in {**tensors, **buffers}.items()}
    for where, value in found.items():
        first.setdefault(id(value), where)
    former = getattr(module, "_former_parameters", {})
    return {
        "class": type(module).__qualname__,
        "training": module.training,
        "is a replica": getattr(module, "_is_replica", False),
        "parameters": {name: value is not None for name, value in module._parameters.items()},
        "former parameters": {name: tensors.get(name) is value for name, value in former.items()},
        "tensors": tensors,
        "buffers": buffers,
        "children": {name: child is not None for name, child in module._modules.items()},
        "is": {where: first[id(value)] for where, value in found.items() if value is not None},
        "attributes": _attributes(module, source),
    }


def _attributes(module: nn.Module, source: nn.Module) -> dict[str, bool]:
    """Return, for each attribute of the source, whether the replica has the same object."""
    own = vars(module)
    names = [name for name, value in vars(source).items() if _is_plain(name, value)]
    return {name: own.get(name, _MISSING) is vars(source)[name] for name in names}


def _is_plain(name: str, value: object) -> bool:
    # Tensors are left out: a parameter is an attribute of the replica and not of the source.
    hooks = name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
    return name not in _STATE and not hooks and not isinstance(value, (MethodType, Tensor))
