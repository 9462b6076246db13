"""The call of a module that computes a whole batch on one device."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._containers import Leaf
from ._copies import to_device
from ._devices import as_target
from ._inputs import InputLeaves
from ._placement import DeviceId
from ._scatter_leaves import move_simple
from ._torch_private import compile_only_inlined, exclude_from_compilation, has_transforms
from ._tracing import is_compiling_or_tracing, is_movable, move_tensors
from .scatter_gather import scatter_kwargs


@compile_only_inlined
def call_on_one_device(
    module: Callable[..., Any],
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    source: torch.device,
    target: DeviceId,
    dim: int,
) -> Any:
    """Return the outputs of ``module`` on ``source``, with tensors moved to ``target``."""
    is_recorded = is_compiling_or_tracing()
    if (is_recorded or has_transforms()) and is_movable((inputs, kwargs), dim):
        args, kwargs = move_tensors((inputs, kwargs), source)
    elif is_recorded:
        args, kwargs = first_replica_arguments(*scatter_kwargs(inputs, kwargs, [source], dim))
    else:
        args, kwargs = scatter_to(source, inputs, kwargs, dim)
    return move_output(module(*args, **kwargs), source, target)


@exclude_from_compilation
def scatter_to(
    device: torch.device, inputs: tuple[Any, ...], kwargs: Mapping[str, Any], dim: int
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a replica on ``device``, the only one."""
    moved = move_simple((*inputs, *kwargs.values()), device, dim)
    if moved is None:
        return first_replica_arguments(*scatter_kwargs(inputs, kwargs, [device], dim))
    if not kwargs:
        return moved, {}
    return moved[: len(inputs)], dict(zip(kwargs, moved[len(inputs) :], strict=True))


@compile_only_inlined
def first_replica_arguments(
    inputs: Sequence[Any], kwargs: Sequence[Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of the first replica. A call without arguments has none."""
    return (inputs[0], kwargs[0]) if inputs or kwargs else ((), {})


@compile_only_inlined
def move_output(output: Any, source: torch.device, target: DeviceId) -> Any:
    """Return ``output`` with its tensors moved from ``source`` to ``target``."""
    # If no tensor has to move, the caller gets the module's own output object.
    is_there = target == source or target == source.index
    return output if is_there else _move_tensors(output, source, target)


@exclude_from_compilation
def _move_tensors(output: Any, source: torch.device, target: DeviceId) -> Any:
    device = as_target(target, warns=False)
    if device == source:
        return output
    if type(output) is Tensor and output.layout is torch.strided:
        return to_device(output, device) if output.device == source else output
    leaves = InputLeaves()
    root = leaves.flatten(output, None, "output")
    # Move only the tensors on `source`. Tensors on the CPU stay there, as in `gather`.
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [to_device(leaf.tensor, device) if leaf.tensor.device == source else leaf.tensor]
        for leaf in leaves.copied
    }
    return root.unflatten(1, pieces)[0]
