"""Copies of a module on several devices, through which gradients flow back to it.

``k`` is the number of devices.
"""

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ._buckets import REPLICA_BUFFER_SIZE
from ._collector import use_paused_collector
from ._copies import attached_copies, detached_copies
from ._devices import DeviceLike, as_device_or_current, is_cpu
from ._internals import exclude_from_compilation, is_torchscript_on
from ._replica import Twins, build
from ._tree import Tree, collect_tree

__all__ = ["replicate"]

T = TypeVar("T", bound=nn.Module)


@exclude_from_compilation
def replicate(
    network: T,
    devices: Iterable[DeviceLike],
    detach: bool = False,
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> list[T]:
    """Copy a module to each of ``devices``.

    Modules, parameters and buffers that are shared stay shared, whatever is None stays None, and
    any other attribute is the same object in every replica, but for two: dictionaries of hooks
    are copied, and bound methods of modules of the tree are bound to the replica's modules.
    Replicas of compiled modules, and of modules that have compiled ones below, run compiled: by
    code that is made once a device, at the first call, and fits all later replicas.

    Args:
        network: The module, with all parameters and buffers on ``devices[0]``. It is not
            changed.
        devices: ``k`` targets. The same device may appear twice.
        detach: Whether replicas are cut off from ``network``: no gradient flows back.
        buffer_size: Bytes per transfer, and per sum of gradients. Each such bucket has its own
            autograd node, so a small one frees the replicas' gradients sooner.

    Returns:
        ``k`` modules of the same classes. Their ``parameters()`` are empty: each parameter's
        copy is an attribute of the same name, and is listed in ``_former_parameters``. The
        first replica shares the memory of parameters and buffers: its buffers are those of
        ``network``, and so are its parameters if ``detach``, which then are its parameters. All
        other copies have memory of their own. Buffers that require grad are copied like
        parameters, others without history.

    Raises:
        RuntimeError: A ``ScriptModule`` has a Python module below it; a parameter or buffer is
            not on ``devices[0]``; a module is lazy.
        AssertionError: A parameter is on the CPU, ``devices[0]`` is not, and not ``detach``.
        ValueError: A parameter or buffer is not initialized yet.

    Note:
        What a replica's forward writes is lost with the replica, except in-place changes of
        the first replica's buffers and, under ``no_grad``, parameters.
    """
    tree = collect_tree(network)
    _check_script_modules(tree)
    targets = [as_device_or_current(device) for device in devices]
    if not targets:
        return []
    attached, detached = _sort_tensors(tree, detach=detach)
    _check_ready(attached, detached, targets[0])
    # All that is made here stays until the replicas go, so the collector would run in vain.
    with use_paused_collector():
        one = attached_copies(attached, targets, buffer_size=buffer_size)
        other = detached_copies(detached, targets, buffer_size=buffer_size)
        twins = Twins(
            attached + detached,
            [left + right for left, right in zip(one, other, strict=True)],
            has_grad_buffers=len(attached) > len(tree.parameters),
        )
        build(tree.modules, twins, targets)
    return [*twins.modules[network]]


def _check_script_modules(tree: Tree) -> None:
    """Refuse a script module with a Python module anywhere below it."""
    if is_torchscript_on() and any(map(_has_python_child, tree.modules)):
        raise RuntimeError(
            "Cannot replicate network where python modules are children of ScriptModule"
        )


def _has_python_child(module: nn.Module) -> bool:
    script = torch.jit.ScriptModule
    return isinstance(module, script) and not all(
        child is None or isinstance(child, script) for child in module._modules.values()
    )


def _sort_tensors(tree: Tree, *, detach: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Part the tensors that gradients flow back to from the others."""
    if detach:
        return [], [*tree.parameters, *tree.buffers]
    with_grad = [buffer for buffer in tree.buffers if buffer.requires_grad]
    without = [buffer for buffer in tree.buffers if not buffer.requires_grad]
    return [*tree.parameters, *with_grad], without


def _check_ready(attached: list[Tensor], detached: list[Tensor], source: torch.device) -> None:
    """Refuse tensors that are not on ``source``, or not initialized yet."""
    if not is_cpu(source) and any(map(is_cpu, {tensor.device for tensor in attached})):
        raise AssertionError("Broadcast function not implemented for CPU tensors")
    tensors = attached + detached
    if {tensor.device for tensor in tensors} - {source}:
        number = source if source.index is None else source.index
        raise RuntimeError(f"All tensors must be on devices[0]: {number}")
    # One tensor of each class will do: `is_lazy` looks at the class only.
    if any(map(is_lazy, {type(tensor): tensor for tensor in tensors}.values())):
        raise ValueError(
            "Attempted to use an uninitialized parameter in replicate. Call `forward` with a "
            "dummy batch first, so that lazy modules initialize their parameters"
        )
