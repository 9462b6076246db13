"""The arguments and the outputs of a module that computes on one device, without replicas."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._comm import to_device
from ._compat import (
    compile_only_inlined,
    exclude_from_compilation,
    is_movable,
    is_recorded,
    move_tensors,
)
from ._device import DeviceId, as_target
from ._pytree import InputLeaves, Leaf
from .scatter_gather import scatter_kwargs


@compile_only_inlined
def scatter_to_one(
    inputs: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device, dim: int
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments with their tensors moved to ``device``, without markers."""
    if is_recorded() and is_movable((inputs, kwargs), dim):
        args, kwargs = move_tensors((inputs, kwargs), device)
        return args, kwargs
    return first_replica_arguments(*scatter_kwargs(inputs, kwargs, [device], dim))


@compile_only_inlined
def first_replica_arguments(
    inputs: Sequence[Any], kwargs: Sequence[Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of the first replica."""
    all_args, all_kwargs = at_least_one(inputs, kwargs)
    return all_args[0], all_kwargs[0]


@compile_only_inlined
def at_least_one(inputs: Sequence[Any], kwargs: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """Return ``inputs`` and ``kwargs``; if both are empty, one replica's empty arguments."""
    return (inputs, kwargs) if inputs or kwargs else (((),), ({},))


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
    leaves = InputLeaves()
    root = leaves.flatten(output, None, "output")
    # Move only the tensors on `source`. Tensors on the CPU stay there, as in `gather`.
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [to_device(leaf.tensor, device) if leaf.tensor.device == source else leaf.tensor]
        for leaf in leaves.copied
    }
    return root.unflatten(1, pieces)[0]
