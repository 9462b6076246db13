"""The structure of a replica as plain data.

Hook dictionaries (divergence RE-3) and bound methods in attributes (RE-2) are left out, because
torch.nn.parallel handles them wrongly.
"""

from collections.abc import Iterator
from types import MethodType

from torch import nn

from spec_tests.checks.snapshot import Named

#: Attributes of a module that `_compare_attributes` leaves out: they hold its tensors and
#: children, or only replicas have them.
_STATE = ("_parameters", "_buffers", "_modules", "_is_replica", "_former_parameters")
_MISSING = object()


def replica_structure(replica: nn.Module, source: nn.Module) -> dict[str, Named]:
    """Return a description of each module of ``replica``, by path.

    A module that is the child of two modules appears under both paths.

    Args:
        replica: The replica.
        source: The replicated module.
    """
    first_paths: dict[int, str] = {}
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
    module: nn.Module, source: nn.Module, path: str, first_paths: dict[int, str]
) -> Named:
    """Describe one module of a replica. ``first_paths`` has the first path of objects, by id."""
    tensors = {name: getattr(module, name, None) for name in source._parameters}
    buffers = dict(module._buffers)
    found = {path: module} | {
        f"{path}.{name}": value for name, value in {**tensors, **buffers}.items()
    }
    for where, value in found.items():
        first_paths.setdefault(id(value), where)
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
        sharing={
            where: first_paths[id(value)] for where, value in found.items() if value is not None
        },
        attributes=_compare_attributes(module, source),
    )


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
