"""The call of a module that computes a whole batch on one device."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._containers import Leaf
from ._copies import to_device
from ._devices import as_target, is_cpu, is_on_cpu
from ._inputs import InputLeaves
from ._placement import DeviceId
from ._torch_private import compile_only_inlined, exclude_from_compilation, has_transforms
from ._tracing import CONSTANTS, is_compiling_or_tracing, is_movable, move_tensors
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
    """Return the outputs of ``module``, which is on ``source``, with tensors moved to ``target``.

    The arguments are moved to ``source``. Their tensors must have the dimension ``dim``.
    """
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
    moved = _move_simple((*inputs, *kwargs.values()), device, dim)
    if moved is None:
        return first_replica_arguments(*scatter_kwargs(inputs, kwargs, [device], dim))
    if not kwargs:
        return moved, {}
    return moved[: len(inputs)], dict(zip(kwargs, moved[len(inputs) :], strict=True))


def _move_simple(values: Sequence[Any], device: torch.device, dim: int) -> list[Any] | None:
    """Return ``values`` on ``device`` as `scatter_kwargs` does, in a quarter of the time.

    Return None if there are others than constants and tensors that are moved as a whole. Tensors
    that need gradients, and copies from or to the CPU, need more.
    """
    has_grad_mode, is_to_cpu = torch.is_grad_enabled(), is_cpu(device)
    # One loop, because each call of a function takes long after operators of other threads.
    for each in values:
        if type(each) is not Tensor:
            if type(each) not in CONSTANTS:
                return None
        elif (
            each.layout is not torch.strided
            or not -each.dim() <= dim < each.dim()
            or (has_grad_mode and each.requires_grad)
            or (each.device != device and (is_to_cpu or is_on_cpu(each)))
        ):
            return None
    # A chunk on the device of its tensor is a view.
    return [
        each
        if type(each) is not Tensor
        else each.view_as(each)
        if each.device == device
        else to_device(each, device)
        for each in values
    ]


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
