"""Laws of replicas: relations that must hold between a replica and its module."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

from torch import Tensor, nn

from spec_tests.checks.outcome import Call
from spec_tests.checks.snapshot import snapshot
from spec_tests.checks.wrapper_laws import gradients_of
from spec_tests.failure import Fact, Failure, noted_error
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


class CallWithDetach(Call, Protocol):
    """A call of ``replicate``. ``inputs`` returns the module, devices and rows for each device."""

    @property
    def detach(self) -> bool:
        """Whether the replicas are detached."""


def outputs(call: CallWithDetach, target: Target, topology: Topology) -> tuple[Any, Any]:
    """Return the outputs of all replicas, and the expected outputs, which the module computes."""
    inputs = call.inputs(topology)
    module, rows = inputs["module"], inputs["rows"]
    expected = [module(rows[0])] * len(rows)
    replicas = target.replicate.replicate(module, inputs["devices"], call.detach)
    actual = [replica(x) for replica, x in zip(replicas, rows, strict=True)]
    return _cpu_snapshot(actual), _cpu_snapshot(expected)


def gradients(call: CallWithDetach, target: Target, topology: Topology) -> tuple[Any, Any]:
    """Return the module's gradients after calls of all replicas, and after calls of the module."""
    inputs = call.inputs(topology)
    module, rows = inputs["module"], inputs["rows"]
    replicas = target.replicate.replicate(module, inputs["devices"])
    leaves = [leaf for leaf in named_tensors(module).values() if leaf.requires_grad]
    results = [replica(x) for replica, x in zip(replicas, rows, strict=True)]
    actual = gradients_of(results, leaves)
    expected = gradients_of([module(rows[0]) for _ in rows], leaves)
    return snapshot(actual, {}, strides=False), snapshot(expected, {}, strides=False)


def _cpu_snapshot(tensors: Sequence[Tensor]) -> Any:
    return snapshot([tensor.detach().cpu() for tensor in tensors], {}, strides=False)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers by name. A shared tensor has several names."""
    iterators = module.named_parameters, module.named_buffers
    return {name: tensor for each in iterators for name, tensor in each(remove_duplicate=False)}


def modules_with_paths(
    module: nn.Module, path: str = "module", ancestors: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[str, nn.Module]]:
    """Yield ``module`` and its descendants with their paths. A shared module has several paths.

    A module that contains itself, as `replicate` of the reference makes it of a compiled module,
    has one path.
    """
    yield path, module
    ancestors = (*ancestors, module)
    for name, child in module._modules.items():
        if child is not None and not any(child is each for each in ancestors):
            yield from modules_with_paths(child, f"{path}.{name}", ancestors)


def first_names(objects: Mapping[str, object]) -> dict[str, str]:
    """Return, for each name, the first name in ``objects`` that refers to the same object."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(value), name) for name, value in objects.items()}


def replica_tensors(replica: nn.Module, source: nn.Module) -> dict[str, Tensor]:
    """Return the replica's copies of the parameters and buffers of ``source``, by name."""
    copies = {name: attrgetter(name)(replica) for name in named_tensors(source)}
    for name, copy in copies.items():
        if not isinstance(copy, Tensor):
            text = f"{name} of the replica is a {type(copy).__name__}"
            raise noted_error(Failure("differs", (Fact("output", "class"),), text))
    return copies


def check_attributes_kept(module: nn.Module, before: Mapping[str, int], call: object) -> None:
    """Fail if an attribute of ``module`` is not that of ``before``, from `attribute_ids`."""
    __tracebackhide__ = True
    after = attribute_ids(module)
    changed = {
        "removed": before.keys() - after.keys(),
        "added": after.keys() - before.keys(),
        "replaced": {name for name in before.keys() & after.keys() if before[name] != after[name]},
    }
    if any(changed.values()):
        parts = (f"{verb} {', '.join(sorted(names))}" for verb, names in changed.items() if names)
        text = f"the call has changed the module: {'; '.join(parts)}"
        raise noted_error(Failure("differs", (Fact("output", "value"),), text, call=repr(call)))


def attribute_ids(module: nn.Module) -> dict[str, int]:
    """Return ``id()`` of each attribute of each module, and of each value in a dict attribute."""
    ids: dict[str, int] = {}
    for path, each in modules_with_paths(module):
        for name, value in vars(each).items():
            ids[f"{path}.{name}"] = id(value)
            if isinstance(value, dict):
                ids |= {f"{path}.{name}[{key!r}]": id(entry) for key, entry in value.items()}
    return ids


def flat_weights_are_shared(module: nn.Module) -> list[bool]:
    """Return whether each tensor in the layer's ``_flat_weights`` is the layer's attribute."""
    layer: Any = module.layer
    pairs = zip(layer._flat_weights_names, layer._flat_weights, strict=True)
    return [getattr(layer, name) is weight for name, weight in pairs]


def hook_dictionaries(module: nn.Module) -> dict[str, dict[int, Any]]:
    """Return the dictionaries of hooks of ``module`` and of all its submodules, by name."""
    return {
        f"{path}.{name}".strip("."): value
        for path, child in modules_with_paths(module)
        for name, value in vars(child).items()
        if "_hooks" in name and isinstance(value, dict)
    }
