"""One module on several devices: each computes a part of the batch.

    scatter        the inputs are split, a chunk for each device
    replicate      the module is copied to the devices that got a chunk
    parallel_apply every replica computes its chunk
    gather         the outputs are joined on one device

Letters used in this file: ``N`` is the extent of an input along ``dim``, ``k`` the number of
devices.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function

from ._comm import check_weights, to_device
from ._compat import (
    ProfilerSpan,
    break_graph,
    check_not_traced,
    compile_only_inlined,
    exclude_from_compilation,
    is_movable,
    is_recorded,
    move_tensors,
)
from ._device import DeviceId, DeviceLike, Placement, as_target, choose_devices, is_cuda
from ._legacy_names import _check_balance
from ._legacy_names import _get_available_device_type as _get_available_device_type
from ._pytree import InputLeaves, Leaf, remove_markers
from ._replica import check_source, find_replica_cache, use_replica_cache
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]

T = TypeVar("T", bound=nn.Module)


class DataParallel(nn.Module, Generic[T]):
    """A module that computes each batch on several devices.

    Its steps are the methods :meth:`scatter`, :meth:`replicate`, :meth:`parallel_apply` and
    :meth:`gather`, which a subclass may override. With a single device ``module`` itself computes
    the whole batch there: arguments and outputs are moved, nothing is replicated. Where there is
    no accelerator that numbers its devices (none at all, or Apple's), and the CPU is not asked for
    by name, it does nothing but call ``module``.

    Args:
        module: What to compute. With several devices it must be on the first of them when it
            is called; with one it is moved there now.
        device_ids: ``k`` devices of the accelerator, or the CPU ``k`` times for replicas in
            threads of their own. By default all devices of the accelerator. On the CPU every
            replica uses ``torch.get_num_threads()`` threads for an operator, one per core by
            default: call ``torch.set_num_threads`` so that ``k`` times that number fits the cores.
        output_device: Where the outputs are wanted, by default on the first device.
        dim: The dimension along which inputs are split and outputs joined.
        chunk_sizes: One size or weight for each device. They are the extents of the chunks
            where they sum to ``N``; otherwise ``N`` is shared out in proportion.
        in_turn: Whether the calling thread issues the replicas one after the other; see
            :func:`parallel_apply`, which says when that pays.

    Attributes:
        module: The module.
        device_ids: Ordinals, or CPU devices; empty where nothing is done.
        output_device: An ordinal, or the CPU.
        dim: As given.
        src_device_obj: The first device.
        chunk_sizes: As given.
        in_turn: As given.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: The CPU is named beside other devices; there are not ``k`` chunk sizes, one
            is negative or infinite, or all are 0.

    Note:
        What a replica writes to its attributes is lost with it, but buffers that the replica
        on the first device changes in place are the module's own.

        With several devices ``torch.compile`` leaves a call out of its graphs: to have the
        replicas run compiled, compile ``module``. ``torch.jit.trace`` is refused then: trace
        ``module``. With one device both record the module, as if it were not wrapped.
    """

    #: Class attributes, too, so that they need not be in a pickled state.
    chunk_sizes: Sequence[float] | None = None
    in_turn: bool = False
    #: The profiler's name of a forward.
    _recorded_name = "DataParallel.forward"

    def __init__(
        self,
        module: T,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        *,
        chunk_sizes: Sequence[float] | None = None,
        in_turn: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[DeviceId] = []
        placement = choose_devices(device_ids, output_device)
        if placement is None:
            return
        self.dim = dim
        self.device_ids, self.output_device, self.src_device_obj = placement
        if chunk_sizes is not None:
            check_weights(chunk_sizes, len(self.device_ids))
            self.chunk_sizes = chunk_sizes
        if in_turn:
            self.in_turn = in_turn
        if is_cuda(self.src_device_obj):
            _check_balance(self.device_ids)
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    @compile_only_inlined
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs for the whole batch.

        Args:
            inputs: Positional arguments of the module. Tensors in them are split, unless
                marked ``Whole``.
            kwargs: Keyword arguments, likewise.

        Returns:
            What the module returns, its tensors joined on ``output_device``. With one device
            the module is simply called, and its outputs are moved.

        Raises:
            RuntimeError: A parameter or buffer is not on the first device; or torch.jit.trace
                records a call on several devices.
            ValueError: Two tensors give different numbers of chunks.
            Exception: A replica raised one; see :func:`parallel_apply`.
        """
        if len(self.device_ids) > 1:
            break_graph()
            return self._compute_on_several(inputs, kwargs)
        if is_recorded():
            return self._compute_on_one(inputs, kwargs)
        with ProfilerSpan(self._recorded_name):
            if self.device_ids:
                self._checked_replicas()
            return self._compute_on_one(inputs, kwargs)

    @exclude_from_compilation
    def hold(self) -> AbstractContextManager[None]:
        """Keep the replicas until a ``with`` block ends; for evaluation.

        ``with torch.no_grad(), net.hold(): ...``. The first forward in the block makes replicas
        for all devices, by the step :meth:`replicate`; all others use them, also such as run in
        other threads. Blocks may stand in each other; when the outermost one ends, the memory of
        the replicas is free. They are no part of the wrapper: copies and pickles have none.

        Results and buffers are those of forwards outside of a block: buffers that have changed,
        as in training batch norm does to them, are copied once more. What a replica's forward
        writes to other attributes stays with that replica until the block ends, though, and
        attributes and hooks that the module gets meanwhile do not reach the replicas.

        With a single device, or none, nothing is held, and nothing is refused. On an
        accelerator a forward on other current streams has replicas of its own.

        Raises:
            RuntimeError: From a forward in the block: grad mode is on; or since the replicas were
                made a parameter has changed or been replaced, a module has been switched between
                train and eval, modules below have been exchanged, or ``device_ids`` are others.
                The text names what. Changes through ``.data``, and those of parameters made in
                inference mode, are not noticed, for they are not counted.
        """
        return (
            use_replica_cache(self, self.device_ids) if len(self.device_ids) > 1 else nullcontext()
        )

    @exclude_from_compilation
    def scatter(
        self,
        inputs: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        device_ids: Sequence[DeviceLike],
    ) -> Any:
        """Split the arguments, as ``scatter_kwargs`` does; a step to override."""
        return scatter_kwargs(
            inputs, kwargs, device_ids, dim=self.dim, chunk_sizes=self.chunk_sizes
        )

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        """Copy the module, detached where grad mode is off; a step to override."""
        return replicate(module, device_ids, not torch.is_grad_enabled())

    def parallel_apply(
        self, replicas: Sequence[T], inputs: Sequence[Any], kwargs: Any
    ) -> list[Any]:
        """Call the replicas on the first devices, one each; a step to override."""
        devices = self.device_ids[: len(replicas)]
        return parallel_apply(replicas, inputs, kwargs, devices, in_turn=self.in_turn)

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Join the outputs, as the function ``gather`` does; a step to override."""
        return gather(outputs, output_device, dim=self.dim)

    def _compute_on_one(self, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the module itself: on its device or, without devices, where it is."""
        if not self.device_ids:
            args, kwargs = _remove_markers((inputs, kwargs))
            return self.module(*args, **kwargs)
        source, output = self.src_device_obj, self.output_device
        if type(self).scatter is DataParallel.scatter and "scatter" not in self.__dict__:
            return _compute_on_one(self.module, inputs, kwargs, source, output, self.dim)
        args, kwargs = _first(*self.scatter(inputs, kwargs, self.device_ids))
        return _moved(self.module(*args, **kwargs), source, output)

    @exclude_from_compilation
    def _compute_on_several(
        self, inputs: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Any:
        check_not_traced()
        with record_function(self._recorded_name):
            held = self._checked_replicas()
            all_args, all_kwargs = _with_work(*self.scatter(inputs, kwargs, self.device_ids))
            # A short batch has fewer chunks than there are devices; the last ones stay idle.
            used = self.device_ids[: len(all_args)]
            replicas = held[: len(used)] or self.replicate(self.module, used)
            outputs = self.parallel_apply(replicas, all_args, all_kwargs)
            # Their memory is free for the joined outputs.
            del held, replicas, all_args, all_kwargs
            return self.gather(outputs, self.output_device)

    @exclude_from_compilation
    def _checked_replicas(self) -> Sequence[T]:
        """Give the replicas that are held, if any; refuse a module that is not as it should be."""
        cache = find_replica_cache(self)
        if cache is not None:
            return cache.replicas(self.module, self.device_ids, self._replicate_everywhere)
        check_source(self.module, self.src_device_obj)
        return ()

    def _replicate_everywhere(self) -> list[T]:
        check_source(self.module, self.src_device_obj)
        return self.replicate(self.module, self.device_ids)


@partial(exclude_from_compilation, has_callees=False)
def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Compute one batch on several devices; unlike DataParallel, never with detached replicas.

    Args:
        module: What to compute; its parameters and buffers are on the first device.
        inputs: A tuple of positional arguments, or the one argument; None for no argument.
        device_ids: As for :class:`DataParallel`.
        output_device: As for :class:`DataParallel`.
        dim: As for :class:`DataParallel`.
        module_kwargs: Keyword arguments.

    Returns:
        What the module returns, its tensors joined on ``output_device``. With one device the
        module is simply called, and its outputs are moved.

    Raises:
        RuntimeError: There is no accelerator, and the CPU is not asked for by name; a parameter
            or buffer is not on the first device; torch.jit.trace records a call on several.
        IndexError: ``device_ids`` is empty.
        ValueError: The CPU is named beside other devices; two tensors give different numbers of
            chunks.
        Exception: A replica raised one; see :func:`parallel_apply`.
    """
    placement = choose_devices(device_ids, output_device)
    if placement is None:
        raise RuntimeError("device type could not be determined")
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    if len(placement.device_ids) > 1:
        return _FunctionCall(module, placement, dim)._compute_on_several(inputs, module_kwargs)
    _, output, source = placement
    check_source(module, source)
    return _compute_on_one(module, inputs, module_kwargs or {}, source, output, dim)


class _FunctionCall(DataParallel[nn.Module]):
    """One call of :func:`data_parallel` on several devices."""

    _recorded_name = "data_parallel"

    @exclude_from_compilation
    def __init__(self, module: nn.Module, placement: Placement, dim: int) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device, self.src_device_obj = placement

    def replicate(self, module: nn.Module, device_ids: Sequence[DeviceLike]) -> list[nn.Module]:
        """Copy the module, never detached."""
        return replicate(module, device_ids)


def _compute_on_one(
    module: nn.Module,
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    source: torch.device,
    output_device: DeviceId,
    dim: int,
) -> Any:
    args, kwargs = _sent(inputs, kwargs, source, dim)
    return _moved(module(*args, **kwargs), source, output_device)


@compile_only_inlined
def _remove_markers(arguments: Any) -> Any:
    """Return arguments without markers: a module never sees them, even if nothing is split."""
    return arguments if is_recorded() and is_movable(arguments, 0) else remove_markers(arguments)


@compile_only_inlined
def _sent(
    inputs: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device, dim: int
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and keyword arguments on ``device``, as scatter gives them to one."""
    if is_recorded() and is_movable((inputs, kwargs), dim):
        args, kwargs = move_tensors((inputs, kwargs), device)
        return args, kwargs
    return _first(*scatter_kwargs(inputs, kwargs, [device], dim))


@compile_only_inlined
def _first(
    inputs: Sequence[Any], kwargs: Sequence[Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    all_args, all_kwargs = _with_work(inputs, kwargs)
    return all_args[0], all_kwargs[0]


@compile_only_inlined
def _with_work(inputs: Sequence[Any], kwargs: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """Let one replica run without arguments where nothing was scattered."""
    return (inputs, kwargs) if inputs or kwargs else (((),), ({},))


@compile_only_inlined
def _moved(output: Any, source: torch.device, target: DeviceId) -> Any:
    """Return nested ``output`` with its tensors that are on ``source`` on ``target``."""
    # Where nothing moves the caller gets the module's own object.
    is_there = target == source or target == source.index
    return output if is_there else _move(output, source, target)


@exclude_from_compilation
def _move(output: Any, source: torch.device, target: DeviceId) -> Any:
    device = as_target(target, warns=False)
    if device == source:
        return output
    leaves = InputLeaves()
    root = leaves.flatten(output, None, "output")
    # What the module has put elsewhere stays there, as outputs of several replicas that are on
    # the CPU are joined there.
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [to_device(leaf.tensor, device) if leaf.tensor.device == source else leaf.tensor]
        for leaf in leaves.copied
    }
    return root.unflatten(1, pieces)[0]
