"""Copies of a module on several devices, through which gradients flow back to it.

``k`` is the number of devices.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ._comm import REPLICA_BUFFER_SIZE, attached_copies, detached_copies
from ._compat import exclude_from_compilation, pause_gc
from ._device import DeviceLike, as_device_or_current, is_cpu
from ._legacy_names import _get_device_index as _get_device_index
from ._legacy_names import _init_script_module as _init_script_module
from ._legacy_names import _is_jit_enabled, _is_script_module
from ._legacy_names import _is_script_method as _is_script_method
from ._replica import ReplicaMap, Tree, build_replicas, collect_tree
from .comm import broadcast_coalesced
from .functions import Broadcast

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
        buffer_size: Bytes per transfer, and per sum of gradients, gaps between tensors not
            counted. Each such bucket has its own autograd node, so a small one frees the
            replicas' gradients sooner.

    Returns:
        ``k`` modules of the same classes. Their ``parameters()`` are empty: each parameter's
        copy is an attribute of the same name, and is listed in ``_former_parameters``. The
        first replica shares the memory of parameters and buffers: its buffers are those of
        ``network``, and so are its parameters if ``detach``, which then are its parameters. All
        other copies have memory of their own, aligned as new tensors are. Buffers that require
        grad are copied like parameters, others without history.

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
    with pause_gc():
        one = attached_copies(attached, targets, buffer_size=buffer_size)
        other = detached_copies(detached, targets, buffer_size=buffer_size)
        replica_map = ReplicaMap(
            attached + detached,
            [left + right for left, right in zip(one, other, strict=True)],
            has_grad_buffers=len(attached) > len(tree.parameters),
        )
        build_replicas(tree.modules, replica_map, targets)
    return [*replica_map.modules[network]]


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], detach: bool = False
) -> list[list[Tensor]]:
    """Copy tensors to each of ``devices``.

    Args:
        tensors: ``n`` tensors on ``devices[0]``.
        devices: ``k`` targets. The same device may appear twice.
        detach: Whether copies are cut off from ``tensors``: no gradient flows back.

    Returns:
        ``k`` lists of ``n`` tensors, as from ``Broadcast``, or from ``broadcast_coalesced`` if
        ``detach``. Without tensors there is no list.

    Raises:
        AssertionError: A tensor is on the CPU, and not ``detach``.
        RuntimeError: A tensor is not on ``devices[0]``.
        ValueError: ``devices`` is empty, or has the CPU in it.
    """
    count = len(tensors)
    if count == 0:
        return []
    if detach:
        return broadcast_coalesced(tensors, devices)
    copies = Broadcast.apply(devices, *tensors)  # type: ignore[no-untyped-call] # in torch
    return [list(copies[start : start + count]) for start in range(0, len(copies), count)]


def _replicatable_module(module: nn.Module, memo: set[nn.Module] | None = None) -> bool:
    """Return whether no script module of a tree has a Python module as a child.

    Args:
        module: The root of the tree.
        memo: Modules that are not checked, unless ``module`` is among them. Those of the tree
            are added.

    Returns:
        True, too, where TorchScript is off.
    """
    memo = set() if memo is None else memo
    modules = set(collect_tree(module).modules)
    unchecked = {module} | (modules - memo)
    memo |= modules
    return _are_replicatable(unchecked)


def _check_script_modules(tree: Tree) -> None:
    """Refuse a script module with a Python module anywhere below it."""
    if not _are_replicatable(tree.modules):
        raise RuntimeError(
            "Cannot replicate network where python modules are children of ScriptModule"
        )


def _are_replicatable(modules: Iterable[nn.Module]) -> bool:
    return not (_is_jit_enabled() and any(map(_has_python_child, modules)))


def _has_python_child(module: nn.Module) -> bool:
    return _is_script_module(module) and not all(
        child is None or _is_script_module(child) for child in module._modules.values()
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
