"""DataParallel: replicas of one module compute each batch on several devices.

Letters used in this file: ``N`` is the size of an input along ``dim``, ``k`` the number of
devices.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self, TypeVar

import torch
from torch import nn

from ._arguments import argument, as_bool, as_int
from ._copy_cache import ParameterCache
from ._devices import DeviceLike, as_devices, is_cuda

# Undocumented names of torch.nn.parallel. petals and copies of DataParallel import the first one,
# and tests replace both. `DataParallel` calls `_check_balance`.
from ._devices import accelerator_type as _get_available_device_type  # noqa: F401
from ._forward import Wrapper
from ._module_tree import check_source
from ._one_device import call_on_one_device
from ._placement import (
    DeviceId,
    Placement,
    check_devices_exist,
    choose_devices,
    warn_of_ignored_devices,
)
from ._placement import check_balance as _check_balance
from ._replica_cache import ReplicaCache, keep_replicas
from ._replica_pool import ReplicaPool, map_batches
from ._scatter_leaves import check_chunk_sizes, check_no_zero
from ._torch_private import exclude_from_compilation, has_modes_or_transforms
from .replicate import replicate_with

__all__ = ["DataParallel", "data_parallel"]

T = TypeVar("T", bound=nn.Module)


class DataParallel(Wrapper[T]):
    """A module that computes each batch on several devices.

    The steps of a forward are the methods :meth:`scatter`, :meth:`replicate`,
    :meth:`parallel_apply` and :meth:`gather`, which a subclass may override. With one device
    ``module`` itself computes the batch there. Without an accelerator with device indices a
    forward only calls ``module``, unless ``device_ids`` names the CPU.

    Args:
        module: The module. With several devices it must be on the first one when it is called.
            With one device the constructor moves it there.
        device_ids: ``k`` devices of one accelerator, or the CPU ``k`` times. By default all
            devices of the accelerator; of two accelerators, of that with the first parameter.
        output_device: The device of the outputs, by default the first of ``device_ids``.
        dim: The dimension along which inputs are split and outputs concatenated.
        chunk_sizes: ``k`` positive sizes or weights. If they sum to ``N``, they are the sizes of
            the chunks. Otherwise ``N`` is divided in proportion to them, rounded up.
        in_turn: Whether the replicas run one after the other; see :func:`parallel_apply`.
        scalar_warning: Whether a warning says that scalars of the replicas become a vector.
        module_attributes: Whether public attributes that the wrapper lacks are read from
            ``module``.
        cache_frozen_parameters: Whether copies of parameters that do not require grad are kept
            between forwards until a change of one is seen; ``docs/fine_tuning.md`` has the rules.

    All arguments are attributes, and ``src_device_obj`` is the first device. If a forward only
    calls ``module``, ``device_ids`` is empty, and ``output_device``, ``dim`` and
    ``src_device_obj`` are missing. None for one of the last four arguments means the attribute of
    the class.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU with other devices; ``chunk_sizes`` does not have
            ``k`` entries, or has one that is negative, infinite or 0.
        TypeError: ``device_ids`` is not a sequence, an object names no device, or there are
            several devices and ``module`` has no ``parameters``. None is accepted: ``module`` may
            be assigned later.
        RuntimeError: A device does not exist, or ``output_device`` is on an accelerator, and there
            is none.

    Warns:
        UserWarning: ``device_ids`` is ignored, because there is no accelerator with device
            indices.

    Note:
        The buffers of the first replica are those of ``module``, so changes to them in place
        remain; attributes that replicas set are lost. A chunk on the device of its input shares
        memory with it. ``docs/arguments.md``, ``docs/buffers_and_checkpoints.md``,
        ``docs/reproducibility.md`` and ``docs/compiled_modules.md`` have the details.
    """

    cache_frozen_parameters: bool = False

    def __init__(
        self,
        module: T,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        *,
        chunk_sizes: Sequence[float] | None = None,
        in_turn: bool | None = None,
        scalar_warning: bool | None = None,
        module_attributes: bool | None = None,
        cache_frozen_parameters: bool | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        placement = choose_devices(device_ids, output_device, module)
        self.device_ids: list[DeviceId] = [] if placement is None else placement.device_ids
        if len(self.device_ids) > 1:
            _check_has_parameters(module)
        if chunk_sizes is not None:
            # Without devices any number of sizes is accepted.
            check_chunk_sizes(chunk_sizes, len(self.device_ids) or None)
            check_no_zero(chunk_sizes)
            self.chunk_sizes = chunk_sizes
        options = {
            "in_turn": in_turn,
            "scalar_warning": scalar_warning,
            "module_attributes": module_attributes,
            "cache_frozen_parameters": cache_frozen_parameters,
        }
        for name, value in options.items():
            if value is not None:  # None leaves the option to the attribute of the class.
                setattr(self, name, as_bool(name, value))
        if placement is None:
            if device_ids is not None:
                warn_of_ignored_devices()
            return
        check_devices_exist(placement)
        self.dim = dim
        _, self.output_device, self.src_device_obj = placement
        if is_cuda(self.src_device_obj):
            _check_balance(self.device_ids)
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def extra_repr(self) -> str:
        """Return the devices, and the other arguments: keyword-only ones if they were passed."""
        devices = self.device_ids
        shown: dict[str, object] = {"device_ids": devices}
        if devices and self.output_device != devices[0]:
            shown["output_device"] = self.output_device
        if getattr(self, "dim", 0) != 0:  # Without devices the attribute is missing.
            shown["dim"] = self.dim
        shown |= {name: value for name, value in vars(self).items() if name in _KEYWORDS}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        """Copy the module, detached if grad mode is off. A subclass may override this step.

        The wrapper has no argument ``buffer_size``: override this step to pass it to
        :func:`replicate`.
        """
        copier = None
        if not self.cache_frozen_parameters:
            ParameterCache.free(self)
        elif not has_modes_or_transforms():
            copier = ParameterCache.find_or_make(self).copy
        detach = not torch.is_grad_enabled()
        return replicate_with(copier, module, device_ids, detach, with_parameters=True)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        # The copies shall not occupy memory of devices that the module has left.
        ParameterCache.free(self)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return self

    @exclude_from_compilation
    def hold(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the replicas in a ``with`` block, for evaluation.

        Example: ``with torch.no_grad(), net.hold(): ...``. The first forward in the block calls
        :meth:`replicate` for all devices, and later forwards reuse the replicas, also in other
        threads. A forward builds new replicas after a change that it detects, and for streams on
        which it has none. If it has used old copies after another change, the end of the block
        raises an error. ``docs/evaluation.md`` lists the changes, the one kind that the end
        misses, and the modules that are replicated in each forward. With one device, or none, the
        block has no effect. Blocks may be nested; the outermost one frees the replicas.

        Raises:
            RuntimeError: A forward in the block is called while grad mode is on. At the end of the
                outermost block, which compares all parameters and buffers with the last device's
                copies and waits for the devices: a tensor has changed in a way that increases no
                version, as changes through ``.data``, NumPy, DLPack and collectives are.

        Warns:
            RuntimeWarning: The same, if another exception ends the block.
        """
        return keep_replicas(self) if len(self.device_ids) > 1 else nullcontext()

    @exclude_from_compilation
    def map(
        self,
        batches: Iterable[Any],
        *,
        method: str | None = None,
        in_flight: int | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
    ) -> Generator[Any]:
        """Yield the output of the module for each batch. Whole batches go to free devices.

        Example: ``with torch.no_grad(): for output in net.map(batches): ...``. It is :meth:`hold`
        for its duration, and calls only :meth:`replicate` of the four steps. A module that changes
        buffers, as batch norm in training, has no defined order of these changes.

        Args:
            batches: The batches. A list or tuple contains the positional arguments, a mapping the
                keyword arguments; any other object, a packed sequence or a TensorDict is the only
                argument. The iterator is used in the calling thread.
            method: The name of a method of the module, such as ``"generate"``, that computes a
                batch. By default the module is called.
            in_flight: The largest number of batches that were taken from ``batches`` and whose
                outputs were not yielded. By default four for each device.
            ordered: Whether outputs have the order of the batches. Otherwise each is yielded when
                it is ready.
            return_exceptions: Whether the exception of a batch is yielded in place of its output,
                and the next batches are computed. Otherwise it is raised.

        Returns:
            A generator. A tensor on the device of its replica is moved to ``output_device``. If
            the generator is closed, it waits for the batches that have begun, and drops the
            others.

        Raises:
            ValueError: ``in_flight`` is less than 1.
            TypeError: ``in_flight`` is no integer, ``batches`` is not iterable, or the module has
                no such ``method``.
            RuntimeError: Grad mode is on. At the end: a tensor has changed in a way that increases
                no version; see :meth:`hold`. If the generator is closed before, it warns.
                Or a forked child takes an output of a generator of its parent process.
            Exception: The module or ``batches`` raised an exception. It is raised in place of the
                output, as in :func:`parallel_apply`, and ends the generator.

        Note:
            A batch gets the state of the calling thread (see :func:`parallel_apply`) and of the
            module when it was taken, or later. So a change of the module between two outputs,
            such as a step of an optimizer, applies to all batches that are taken afterwards;
            ``docs/evaluation.md`` lists the changes that are found later, or only at the end.
        """
        limit = 4 * max(1, len(self.device_ids))
        if in_flight is not None:
            limit = min(as_int("in_flight", in_flight), sys.maxsize)
        if limit < 1:
            raise ValueError(f"in_flight is {limit}, and must be at least 1")
        ordered = as_bool("ordered", ordered)
        return_exceptions = as_bool("return_exceptions", return_exceptions)
        if method is not None:
            self._check_method(method)
        pool = ReplicaPool(
            self.device_ids,
            self.output_device if self.device_ids else None,
            method,
            self.in_turn,
            ordered=ordered,
            return_exceptions=return_exceptions,
        )
        with argument("batches"):
            return self._map(iter(batches), pool, limit)

    @exclude_from_compilation
    def _map(self, batches: Iterator[Any], pool: ReplicaPool, limit: int) -> Generator[Any]:
        with self.hold():
            kept = ReplicaCache.find_active(self)
            find_replicas = partial(self._find_replicas, kept, pool.devices)
            seem_current = partial(self._seem_current, kept)
            update = partial(pool.update, find_replicas, seem_current)
            yield from map_batches(batches, update, pool, limit)

    def _find_replicas(
        self, kept: ReplicaCache | None, devices: Sequence[torch.device], *, samples: bool
    ) -> Sequence[T]:
        """Return a detached replica for each device; the module, if it is the only one."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "map() computes without gradients, and grad mode is on: iterate under "
                "torch.no_grad()"
            )
        if kept is not None:
            return self._replicas_in(kept, devices, samples=samples)
        network = self._replicated_module()
        if self.device_ids:
            check_source(network, self.src_device_obj)
        return (network,)

    def _seem_current(self, kept: ReplicaCache | None, replicas: Sequence[T]) -> bool:
        """Return whether a cheap check finds no change since ``replicas`` were found."""
        return kept is not None and kept.seem_current(self._replicated_module(), replicas)

    @exclude_from_compilation
    def _kept_replicas(self) -> Sequence[T]:
        """Return the replicas of the active block of ``hold``; outside of it, an empty tuple.

        Raise RuntimeError if a parameter or buffer is not on the first device.
        """
        kept = ReplicaCache.find_active(self)
        if kept is None:
            return ()
        return self._replicas_in(kept, as_devices(self.device_ids))

    def _replicas_in(
        self, kept: ReplicaCache, devices: Sequence[torch.device], *, samples: bool = True
    ) -> Sequence[T]:
        network = self._replicated_module()

        def build() -> list[T]:
            check_source(network, self.src_device_obj)
            return self.replicate(network, self.device_ids)

        return kept.replicas(network, devices, build, samples=samples)


#: The names of the keyword-only arguments of a DataParallel.
_KEYWORDS = frozenset(DataParallel.__init__.__kwdefaults__ or ())


@partial(exclude_from_compilation, has_callees=False)
def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Compute one batch on several devices. Unlike with DataParallel, replicas are never detached.

    ``inputs`` is a tuple of positional arguments, or a single argument; None for no argument.
    ``module_kwargs`` are keyword arguments. The parameters and buffers of ``module`` must be on
    the first device. The other arguments are those of :class:`DataParallel`.

    Returns:
        The outputs of the replicas, with tensors concatenated on ``output_device``. With one
        device, the outputs of the module, moved there.

    Raises:
        RuntimeError: There is no accelerator, and ``device_ids`` does not name the CPU; a
            parameter or buffer is not on the first device; torch.jit.trace records a call on
            several devices.
        Exception: See :class:`DataParallel`, and :meth:`DataParallel.forward`.
    """
    placement = choose_devices(device_ids, output_device, module)
    if placement is None:
        raise RuntimeError("device type could not be determined")
    if not issubclass(type(inputs), tuple):
        inputs = () if inputs is None else (inputs,)
    if len(placement.device_ids) > 1:
        wrapper = _FunctionWrapper(module, placement, dim)
        return wrapper._compute_on_several(None, inputs, module_kwargs)
    _, output, source = placement
    check_source(module, source)
    return call_on_one_device(module, inputs, module_kwargs or {}, source, output, dim)


def _check_has_parameters(module: Any) -> None:
    # Programs construct DataParallel(None) to get a wrapper without a module.
    is_class = isinstance(module, type)
    if module is not None and (is_class or not hasattr(module, "parameters")):
        name = f"the class {module.__name__}" if is_class else type(module).__name__
        raise TypeError(f"module must be a Module, not {name}")


class _FunctionWrapper(Wrapper[nn.Module]):
    """The wrapper of one call of :func:`data_parallel` on several devices."""

    _profiler_name = "data_parallel"

    @exclude_from_compilation
    def __init__(self, module: nn.Module, placement: Placement, dim: int) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device, self.src_device_obj = placement
