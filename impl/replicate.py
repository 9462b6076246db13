"""Replicas of a module on several devices. Gradients flow back to the module.

``k`` is the number of devices.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ._arguments import argument, as_bool, as_buffer_size, as_list
from ._bucket_copies import attached_copies, detached_copies
from ._buckets import REPLICA_BUFFER_SIZE
from ._copies import check_gradient_layout
from ._devices import DeviceLike, as_devices, is_cpu
from ._devices import device_index as _get_device_index  # noqa: F401 - see the end of this file
from ._inputs import SPARSE_LAYOUTS
from ._module_tree import Tree, collect_tree
from ._module_tree import is_script_module as _is_script_module
from ._replicas import ReplicaMap, build_replicas
from ._settings import pause_gc
from ._torch_private import exclude_from_compilation
from ._torch_private import is_torchscript_enabled as _is_jit_enabled
from .comm import broadcast_coalesced
from .functions import Broadcast

__all__ = ["replicate"]

T = TypeVar("T", bound=nn.Module)

#: A function that copies some of the parameters. It is called with all parameters, the devices,
#: and whether the copies are detached. It returns the parameters that it has copied, and for each
#: device the list of their copies.
_Copier = Callable[
    [Sequence[Tensor], Sequence[torch.device], bool], tuple[Sequence[Tensor], list[list[Tensor]]]
]


@exclude_from_compilation
def replicate(
    network: T,
    devices: Iterable[DeviceLike],
    detach: bool = False,
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
    with_parameters: bool = False,
) -> list[T]:
    """Copy a module to each of ``devices``.

    Modules, parameters and buffers that are shared in ``network`` are shared in each replica, and
    members that are None stay None. Dictionaries of hooks are copied. Attributes and hooks of a
    replica that refer to modules of the tree refer to those of the replica: modules, bound
    methods, weak references, ``functools.partial`` of these, and lists, tuples, dictionaries and
    sets of exactly these classes that contain such an object. Parameters and buffers of the tree
    that are keys of these dictionaries, or members of these sets, are its copies. Any other
    attribute is the same object in all replicas, also a function with a closure over a module and
    an object that holds one. Replicas of compiled modules, and of modules with compiled
    submodules, run compiled code. It is compiled once per device, at the first call, and reused by
    all later replicas.

    Args:
        network: The module, with all parameters and buffers on ``devices[0]``. It is not
            changed.
        devices: ``k`` targets. The same device may appear twice.
        detach: Whether the replicas are detached: no gradient flows back to ``network``.
        buffer_size: The largest number of bytes of the tensors in one bucket; a larger tensor is
            a bucket of its own. The small tensors of a bucket are copied in one transfer. Its
            gradients are summed in one autograd node, so small buckets free the replicas'
            gradients sooner.
        with_parameters: Whether ``parameters()`` of a replica are the copies, as in the replicas
            of ``DataParallel``. A forward can then read and replace them as on ``network``. As
            on ``network``, a forward cannot assign a plain tensor to the name of a parameter. A
            forward cannot change whether a copy requires a gradient. These replicas lack the mark
            ``_is_replica``, which says that ``parameters()`` are empty. Their lists and
            dictionaries of parameters are of subclasses whose slices and copies have gradients.

    Returns:
        ``k`` modules of the same classes. The copy of a parameter has its name, and is an entry of
        ``_former_parameters``. Unless ``with_parameters`` is True, it is a plain attribute, and
        ``parameters()`` are empty, except for those of a detached first replica. The first replica
        shares the memory of ``network``. Its buffers are those of ``network``, and with ``detach``
        its parameters are, too. All other copies have their own memory, aligned like new tensors.
        Buffers that require grad are copied like parameters. Copies of other buffers have no
        autograd history. Copies of parameters that were created in inference mode are inference
        tensors if gradients flow back to them, so autograd treats the replicas as ``network``.
        Copies have the attributes of their tensors, as the same objects: a tensor in an attribute
        stays on its device. Only an object with a method ``to``, such as ``quant_state`` of
        bitsandbytes, is copied, and the tensors in its attributes are moved. Copies of tensors of
        a subclass are of this subclass, except subclasses of Parameter. A class that
        defines ``__torch_dispatch__`` copies its tensors itself.

    Raises:
        RuntimeError: A ``ScriptModule`` has a Python submodule; a parameter or buffer is not on
            ``devices[0]``; a module is lazy.
        AssertionError: ``detach`` is False, and a parameter is on the CPU while ``devices[0]``
            is not.
        NotImplementedError: A sparse parameter or buffer requires grad, grad mode is on, and
            ``detach`` is False.
        ValueError: A parameter or buffer is not initialized.
        TypeError: ``buffer_size`` is not an integer from 0; an object names no device.

    Note:
        Changes that a forward makes to its replica are lost when the replica is freed. Exceptions
        are in-place changes to the first replica's buffers and, under ``no_grad``, to its
        parameters, since these share the memory of ``network``; and without ``with_parameters``
        the names of non-persistent buffers and the keys of a ``ParameterDict``, which are shared.
    """
    buffer_size = as_buffer_size(buffer_size)
    with_parameters = as_bool("with_parameters", with_parameters)
    return replicate_with(
        None, network, devices, detach, buffer_size, with_parameters=with_parameters
    )


@exclude_from_compilation
def replicate_with(
    copier: _Copier | None,
    network: T,
    devices: Iterable[DeviceLike],
    detach: bool,
    buffer_size: int = REPLICA_BUFFER_SIZE,
    *,
    with_parameters: bool,
) -> list[T]:
    """Return replicas as :func:`replicate` does. ``copier`` copies some parameters."""
    with argument("network"):
        tree = collect_tree(network)
    if not _are_replicatable(tree.modules):
        raise RuntimeError(
            "Cannot replicate network where python modules are children of ScriptModule"
        )
    targets = as_devices(as_list("devices", devices))
    if not targets:
        return []
    attached, detached = _partition_tensors(tree, detach=as_bool("detach", detach))
    _check_tensors(network, attached, detached, targets[0])
    # All objects that are created here live as long as the replicas, so the garbage collector
    # would free nothing.
    has_grad_buffers = len(attached) > len(tree.parameters)
    with pause_gc():
        copied: Sequence[Tensor] = ()
        copies: list[list[Tensor]] = [[] for _ in targets]
        if copier is not None:
            copied, copies = copier(tree.parameters, targets, detach)
            keys = {*map(id, copied)}
            attached = [tensor for tensor in attached if id(tensor) not in keys]
            detached = [tensor for tensor in detached if id(tensor) not in keys]
        groups = [
            attached_copies(attached, targets, buffer_size=buffer_size),
            detached_copies(detached, targets, buffer_size=buffer_size),
            copies,
        ]
        replica_map = ReplicaMap(
            [*attached, *detached, *copied],
            [[*chain(*each)] for each in zip(*groups, strict=True)],
            has_grad_buffers=has_grad_buffers,
        )
        build_replicas(tree.modules, replica_map, targets, with_parameters=with_parameters)
    return [*replica_map.modules[network]]


def _are_replicatable(modules: Iterable[nn.Module]) -> bool:
    return not (_is_jit_enabled() and any(map(_has_python_child, modules)))


def _has_python_child(module: nn.Module) -> bool:
    return _is_script_module(module) and not all(
        child is None or _is_script_module(child) for child in module._modules.values()
    )


def _partition_tensors(tree: Tree, *, detach: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that receive gradients from their copies, and the other tensors."""
    if detach:
        return [], [*tree.parameters, *tree.buffers]
    with_grad = [buffer for buffer in tree.buffers if buffer.requires_grad]
    without = [buffer for buffer in tree.buffers if not buffer.requires_grad]
    return [*tree.parameters, *with_grad], without


def _check_tensors(
    network: nn.Module, attached: list[Tensor], detached: list[Tensor], source: torch.device
) -> None:
    """Check that all tensors of ``network`` are on ``source``, initialized, and can be copied."""
    if not is_cpu(source) and any(map(is_cpu, {tensor.device for tensor in attached})):
        raise AssertionError("Broadcast function not implemented for CPU tensors")
    tensors = attached + detached
    if {tensor.device for tensor in tensors} - {source}:
        number = source if source.index is None else source.index
        raise RuntimeError(f"All tensors must be on devices[0]: {number}")
    if {tensor.layout for tensor in attached} & SPARSE_LAYOUTS:
        members = chain(network.named_parameters(), network.named_buffers())
        for name, tensor in members:
            check_gradient_layout(tensor, name)
    # `is_lazy` depends on the class alone, so one tensor of each class is enough.
    if any(map(is_lazy, {type(tensor): tensor for tensor in tensors}.values())):
        raise ValueError(
            "Attempted to use an uninitialized parameter in replicate. Call `forward` with a "
            "dummy batch first, so that lazy modules initialize their parameters"
        )


# Undocumented names of torch.nn.parallel. torchmeta imports `_broadcast_coalesced_reshape`, and
# copies of replicate import all names. A replacement of `_is_jit_enabled` or `_is_script_module`
# changes `replicate`, a replacement of another name does not.


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], detach: bool = False
) -> list[list[Tensor]]:
    """Copy tensors to each of ``devices``. Unless ``detach`` is True, gradients flow back."""
    count = len(tensors)
    if count == 0:
        return []
    if detach:
        return broadcast_coalesced(tensors, devices)
    copies = Broadcast.apply(devices, *tensors)  # type: ignore[no-untyped-call] # in torch
    return [list(copies[start : start + count]) for start in range(0, len(copies), count)]


def _replicatable_module(module: nn.Module, memo: set[nn.Module] | None = None) -> bool:
    """Return whether the tree of ``module`` can be replicated. Children in ``memo`` can."""
    memo = set() if memo is None else memo
    memo.discard(module)  # The module itself is checked even if it is in the memo.
    return _are_replicatable([each for _, each in module.named_modules(memo)])


def _is_script_method(module: object) -> bool:
    return isinstance(module, torch.ScriptMethod)


def _init_script_module() -> torch.jit.ScriptModule:
    return torch.jit.ScriptModule()
