"""Laws of replicas: relations between a replica and its module."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from spec_tests.harness.compare.outcome import Call, cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


class ReplicateCall(Call, Protocol):
    """A call of ``replicate``. Its inputs are module, devices, and rows for each replica."""

    @property
    def detach(self) -> bool:
        """Whether the replicas are detached."""


def outputs(call: ReplicateCall, target: Target, topology: Topology) -> tuple[Any, Any]:
    """Return the outputs of all replicas, and the outputs of the module for the same rows."""
    inputs = call.inputs(topology)
    module, rows = inputs["module"], inputs["rows"]
    expected = [module(rows[0])] * len(rows)
    replicas = target.replicate.replicate(module, inputs["devices"], call.detach)
    return _values([r(x) for r, x in zip(replicas, rows, strict=True)]), _values(expected)


def gradients(call: ReplicateCall, target: Target, topology: Topology) -> tuple[Any, Any]:
    """Return the gradients of the module from all replicas, and from as many of its own calls."""
    inputs = call.inputs(topology)
    module, rows = inputs["module"], inputs["rows"]
    replicas = target.replicate.replicate(module, inputs["devices"])
    leaves = [leaf for leaf in named_tensors(module).values() if leaf.requires_grad]
    of_replicas = [r(x) for r, x in zip(replicas, rows, strict=True)]
    return _sum(of_replicas, leaves), _sum([module(rows[0]) for _ in rows], leaves)


def _sum(results: Sequence[Tensor], leaves: Sequence[Tensor]) -> Any:
    results = [result for result in results if result.requires_grad]
    if not results:
        return None
    cotangents = [cotangent(result) for result in results]
    return _values(torch.autograd.grad(results, leaves, cotangents))


def _values(found: Sequence[Tensor]) -> Any:
    return snapshot([each.detach().cpu() for each in found], {}, strides=False)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name; a shared tensor has several names."""
    named = module.named_parameters, module.named_buffers
    return {name: found for each in named for name, found in each(remove_duplicate=False)}


def modules_with_paths(module: nn.Module, path: str = "module") -> Iterator[tuple[str, nn.Module]]:
    """Yield ``module`` and its descendants with their paths; a shared module has several."""
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from modules_with_paths(child, f"{path}.{name}")


def first_names(found: Mapping[str, object]) -> dict[str, str]:
    """Return for each name the first name of the same object."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(value), name) for name, value in found.items()}


def replica_tensors(replica: nn.Module, source: nn.Module) -> dict[str, Tensor]:
    """Return the replica's copies of the source's parameters and buffers by name."""
    return {name: _get_nested_attribute(replica, name) for name in named_tensors(source)}


def _get_nested_attribute(module: nn.Module, name: str) -> Tensor:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    if not isinstance(value, Tensor):
        raise AssertionError(f"{name} of the replica is a {type(value).__name__}")
    return value


def attribute_ids(module: nn.Module) -> dict[str, int]:
    """Return the id of every attribute of every module, and of every member of a dictionary."""
    found: dict[str, int] = {}
    for path, each in modules_with_paths(module):
        for name, value in vars(each).items():
            found[f"{path}.{name}"] = id(value)
            if isinstance(value, dict):
                found |= {f"{path}.{name}[{key!r}]": id(entry) for key, entry in value.items()}
    return found


def former_parameters(
    replica: nn.Module, source: nn.Module
) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return whether each former parameter is the replica's attribute, and the expected values."""
    pairs = list(zip(modules_with_paths(replica), modules_with_paths(source), strict=True))
    found = {
        f"{path}.{name}": getattr(each, name) is copy
        for (path, each), _ in pairs
        for name, copy in getattr(each, "_former_parameters", {}).items()
    }
    named = [(path, each._parameters) for _, (path, each) in pairs]
    expected = {f"{p}.{n}": True for p, own in named for n, v in own.items() if v is not None}
    return found, expected


def flat_weights_are_shared(module: nn.Module) -> list[bool]:
    """Return whether each flat weight of the recurrent layer is the attribute of that name."""
    layer: Any = module.layer
    pairs = zip(layer._flat_weights_names, layer._flat_weights, strict=True)
    return [getattr(layer, name) is weight for name, weight in pairs]
