"""The structure of a replica as plain data.

Hook dictionaries (divergence RE-3) and bound methods in attributes (RE-2) are left out, because
torch.nn.parallel handles them wrongly.
"""

from collections.abc import Iterator, Mapping
from types import MethodType

from torch import nn

from spec_tests.checks.snapshot import Named

#: Attributes of a module that `_compare_attributes` leaves out: they hold its tensors and
#: children, or only replicas have them.
_STATE = ("_parameters", "_buffers", "_modules", "_is_replica", "_former_parameters")
_MISSING = object()

#: For modules, parameters and buffers: the first path of each object, by ``id()``.
_FirstPaths = tuple[dict[int, str], dict[int, str], dict[int, str]]


def replica_structure(replica: nn.Module, source: nn.Module) -> dict[str, Named]:
    """Return a description of each module of ``replica``, by path.

    A module that is the child of two modules appears under both paths.

    Args:
        replica: The replica.
        source: The replicated module.
    """
    first_paths: _FirstPaths = {}, {}, {}
    pairs = _module_pairs(replica, source, "module")
    return {
        path: _module_structure(module, original, path, first_paths)
        for path, module, original in pairs
    }


def _module_pairs(
    replica: nn.Module, source: nn.Module, path: str
) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """Yield the path of each module, the replica's module and the original."""
    yield path, replica, source
    for name, child in source._modules.items():
        copy = replica._modules.get(name)
        if child is not None and copy is not None:
            yield from _module_pairs(copy, child, f"{path}.{name}")


def _module_structure(
    module: nn.Module, source: nn.Module, path: str, first_paths: _FirstPaths
) -> Named:
    """Describe one module of a replica."""
    tensors = {name: getattr(module, name, None) for name in source._parameters}
    buffers = dict(module._buffers)
    modules, shared_tensors, shared_buffers = first_paths
    former = getattr(module, "_former_parameters", {})
    return Named(
        kind=type(module).__qualname__,
        training=module.training,
        is_replica=getattr(module, "_is_replica", False),
        parameters={name: _presence(value) for name, value in module._parameters.items()},
        former_parameters={
            name: _identity(tensors.get(name), value, "the replica's")
            for name, value in former.items()
        },
        tensors=tensors,
        buffers=buffers,
        children={name: _presence(child) for name, child in module._modules.items()},
        shared_modules=modules.setdefault(id(module), path),
        sharing=_first_paths(tensors, path, shared_tensors),
        shared_buffers=_first_paths(buffers, path, shared_buffers),
        attributes=_compare_attributes(module, source),
    )


def _first_paths(values: Mapping[str, object], path: str, known: dict[int, str]) -> dict[str, str]:
    """Return the first path of each value of a module. ``known`` has those of other modules."""
    return {
        name: known.setdefault(id(value), f"{path}.{name}")
        for name, value in values.items()
        if value is not None
    }


def _presence(value: object) -> str:
    return "missing" if value is None else "present"


def _identity(value: object, other: object, owner: str) -> str:
    return f"{owner} object" if value is other else f"not {owner} object"


def _compare_attributes(module: nn.Module, source: nn.Module) -> dict[str, str]:
    """Return, for each compared attribute, whether replica and source hold the same object."""
    return {
        name: _identity(vars(module).get(name, _MISSING), value, "the source's")
        for name, value in vars(source).items()
        if _is_compared(name, value)
    }


def _is_compared(name: str, value: object) -> bool:
    hooks = name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
    return name not in _STATE and not hooks and not isinstance(value, MethodType)
