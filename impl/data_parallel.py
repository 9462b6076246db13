"""DataParallel: replicas of one module compute each batch on several devices.

    scatter        splits the inputs into one chunk per device
    replicate      copies the module to the devices that have a chunk
    parallel_apply runs each replica on its chunk
    gather         concatenates the outputs on one device

Letters used in this file: ``N`` is the size of an input along ``dim``, ``k`` the number of
devices.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.autograd.profiler import record_function

from ._arguments import argument
from ._comm import check_weights
from ._compat import (
    ProfilerSpan,
    break_graph,
    check_not_traced,
    compile_only_inlined,
    exclude_from_compilation,
    is_recorded,
)
from ._device import (
    DeviceId,
    DeviceLike,
    Placement,
    choose_devices,
    is_cuda,
    warn_of_ignored_devices,
)
from ._device import check_balance as _check_balance
from ._legacy_names import _get_available_device_type as _get_available_device_type
from ._module_attributes import ModuleAttributes
from ._one_device import at_least_one, first_replica_arguments, move_output, scatter_to_one
from ._pytree import remove_markers
from ._replica import SeparateChunks, check_source
from .extras.kept import KeptReplicas
from .parallel_apply import parallel_apply
from .replicate import replicate, replicate_with
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]

T = TypeVar("T", bound=nn.Module)


class DataParallel(ModuleAttributes, KeptReplicas[T]):
    """A module that computes each batch on several devices.

    The steps of a forward are the methods :meth:`scatter`, :meth:`replicate`,
    :meth:`parallel_apply` and :meth:`gather`. A subclass may override them. With one device,
    ``module`` itself computes the batch there: arguments and outputs are moved, and nothing is
    replicated. If there is no accelerator with device indices, a forward only calls ``module``,
    unless ``device_ids`` names the CPU.

    Args:
        module: The module to run. With several devices it must be on the first one when it is
            called. With one device it is moved there by the constructor.
        device_ids: ``k`` devices of the accelerator, or the CPU ``k`` times for replicas in
            ``k`` threads. By default, all devices of the accelerator. If two accelerators can be
            used, all devices of the accelerator that has the module's first parameter. On the CPU
            each replica uses ``torch.get_num_threads()`` threads for an operator, by default one
            per core: call ``torch.set_num_threads`` so that all ``k`` replicas together use at
            most one thread per core.
        output_device: The device of the outputs, by default the first of ``device_ids``.
        dim: The dimension along which inputs are split and outputs concatenated.
        chunk_sizes: ``k`` sizes or weights, one per device. If they sum to ``N``, they are the
            sizes of the chunks; otherwise ``N`` is divided in proportion to them.
        in_turn: Whether the replicas run one after the other. The documentation of
            :func:`parallel_apply` says in which thread, and when this is faster.
        scalar_warning: Whether a forward warns if the replicas return scalars, such as losses, of
            which it makes a vector with one entry per replica.
        module_attributes: Whether public attributes that the wrapper lacks are read from
            ``module``: ``wrapper.config`` is then ``module.config``. A method that is read in this
            way runs on ``module`` alone, not on the replicas. Assignments stay on the wrapper.
        cache_frozen_parameters: Whether the copies of parameters that do not require grad are
            kept between the forwards, for fine-tuning: a copy is made again only if its parameter
            has changed. Changes through ``.data``, NumPy or DLPack that no optimizer makes are not
            detected. With ``"check"`` each forward compares the copies, and raises an error after
            such a change. The documentation of :meth:`replicate` has the rules.

    Attributes:
        module: The wrapped module.
        device_ids: Ordinals, CPU devices or devices of a second accelerator; empty if a forward
            only calls ``module``.
        output_device: The device of the outputs, in the form of an entry of ``device_ids``. This
            attribute, ``dim`` and ``src_device_obj`` are missing if ``device_ids`` is empty.
        dim: The argument ``dim``.
        src_device_obj: The first device.
        chunk_sizes: The argument ``chunk_sizes``.
        in_turn: The argument ``in_turn``.
        scalar_warning: The argument ``scalar_warning``. ``DataParallel.scalar_warning = False``
            changes the default of all wrappers, also of those that other packages make.
        module_attributes: The argument ``module_attributes``, with a default of the same kind.
        cache_frozen_parameters: The argument ``cache_frozen_parameters``. After it is set to
            False, the next forward frees the copies.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU with other devices; ``chunk_sizes`` does not have
            ``k`` entries, has a negative or infinite one, or only zeros;
            ``cache_frozen_parameters`` is neither a bool nor ``"check"``.
        TypeError: ``device_ids`` is not a sequence, or an object names no device.

    Warns:
        UserWarning: ``device_ids`` is ignored, because there is no accelerator with device
            indices. The warning is issued once in a process.

    Note:
        This class does not derive from ``torch.nn.DataParallel``: ``isinstance(wrapper,
        torch.nn.DataParallel)`` is true only after :func:`install`. After it
        ``torch.func.functional_call`` refuses a wrapper, as it refuses ``torch.nn.DataParallel``.

        Replicas on the CPU draw from one random generator, in threads in a changing order: dropout
        repeats under a seed only with ``in_turn``. The same holds for replicas on one accelerator.

        Attributes that a replica sets are lost with the replica. The buffers of the replica on
        the first device are those of ``module``, so changes to them in place remain. If a replica
        changes its chunk of an input in place, and the chunk is on the device of the input, the
        caller's tensor changes, too; on other devices, chunks are copies.

        With several devices, ``torch.compile`` leaves a call out of its graphs; compile
        ``module`` to run compiled replicas. ``torch.jit.trace`` raises an error; trace
        ``module`` instead. With one device, both record ``module`` as if it were not wrapped.
    """

    #: Defaults are class attributes, so that a wrapper pickled without them can be loaded.
    chunk_sizes: Sequence[float] | None = None
    in_turn: bool = False
    scalar_warning: bool = True
    #: The name of a forward in profiles.
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
        scalar_warning: bool = True,
        module_attributes: bool = False,
        cache_frozen_parameters: bool | Literal["check"] = False,
    ) -> None:
        super().__init__()
        with argument("module"):
            self.module = module
        placement = choose_devices(device_ids, output_device, module)
        self.device_ids: list[DeviceId] = [] if placement is None else placement.device_ids
        if chunk_sizes is not None:
            with argument("chunk_sizes"):
                # Without devices any number of sizes is accepted.
                check_weights(chunk_sizes, len(self.device_ids) or len(chunk_sizes))
            self.chunk_sizes = chunk_sizes
        with argument("in_turn"):
            if in_turn:
                self.in_turn = True
        with argument("scalar_warning"):
            if not scalar_warning:
                self.scalar_warning = False
        with argument("module_attributes"):
            if module_attributes:
                self.module_attributes = True
        with argument("cache_frozen_parameters"):
            self._set_cache_frozen_parameters(cache_frozen_parameters)
        if placement is None:
            if device_ids is not None:
                warn_of_ignored_devices()
            return
        with argument("dim"):
            self.dim = dim
        _, self.output_device, self.src_device_obj = placement
        if is_cuda(self.src_device_obj):
            _check_balance(self.device_ids)
        if len(self.device_ids) == 1:
            with argument("module or device_ids"):
                self.module.to(self.src_device_obj)

    def extra_repr(self) -> str:
        """Return the devices, and the other arguments that are not the defaults."""
        devices = self.device_ids
        shown: dict[str, object] = {"device_ids": devices}
        if devices and self.output_device != devices[0]:
            shown["output_device"] = self.output_device
        if getattr(self, "dim", 0) != 0:  # Without devices the attribute is missing.
            shown["dim"] = self.dim
        if self.chunk_sizes is not None:
            shown["chunk_sizes"] = self.chunk_sizes
        options = ("in_turn", "scalar_warning", "module_attributes", "cache_frozen_parameters")
        shown |= {name: value for name, value in vars(self).items() if name in options}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    @compile_only_inlined
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs for one batch.

        Args:
            inputs: Positional arguments of the module. Their tensors are split, except those
                marked ``Whole``.
            kwargs: Keyword arguments of the module, split in the same way.

        Returns:
            The outputs of the replicas, with tensors concatenated on ``output_device``. With one
            device, the outputs of the module, moved there.

        Raises:
            RuntimeError: A parameter or buffer is not on the first device, or torch.jit.trace
                records a call on several devices.
            ValueError: Two tensors have different numbers of chunks.
            Exception: A replica raised an exception; see :func:`parallel_apply`.
        """
        if len(self.device_ids) > 1:
            break_graph()
            return self._compute_on_several(inputs, kwargs)
        if is_recorded():
            return self._compute_on_one(inputs, kwargs)
        with ProfilerSpan(self._recorded_name):
            if self.device_ids:
                self._find_cached_replicas()
            return self._compute_on_one(inputs, kwargs)

    @exclude_from_compilation
    def scatter(
        self,
        inputs: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        device_ids: Sequence[DeviceLike],
    ) -> Any:
        """Split the arguments with ``scatter_kwargs``. A subclass may override this step."""
        return scatter_kwargs(
            inputs, kwargs, device_ids, dim=self.dim, chunk_sizes=self.chunk_sizes
        )

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        """Copy the module, detached if grad mode is off. A subclass may override this step.

        The wrapper has no argument ``buffer_size``: override this step to pass it to
        :func:`replicate`.

        With ``cache_frozen_parameters``, copies of parameters that do not require grad are kept,
        one on each device after the first, and the replicas share their memory. A parameter is
        copied again after a change of its version, memory or shape, after a step of an
        optimizer that has its gradient, after a replica has changed the copy in place, and if
        another stream is current. Sparse parameters, those of a class with its own operators,
        those created in inference mode, and all buffers are copied in each forward, and so are
        all parameters while a dispatch mode or a transform of ``torch.func`` is active. The
        copies are freed with the wrapper, and by its methods ``to``, ``cpu`` and the like. If an
        override does not call this method, no copies are kept.
        """
        detach, frozen = not torch.is_grad_enabled(), self._frozen_copies()
        if frozen is None:
            return replicate(module, device_ids, detach, with_parameters=True)
        return replicate_with(frozen, module, device_ids, detach, with_parameters=True)

    def parallel_apply(
        self, replicas: Sequence[T], inputs: Sequence[Any], kwargs: Any
    ) -> list[Any]:
        """Run each replica on its device. A subclass may override this step."""
        devices = self.device_ids[: len(replicas)]
        return parallel_apply(replicas, inputs, kwargs, devices, in_turn=self.in_turn)

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Concatenate the outputs with ``gather``. A subclass may override this step."""
        return gather(outputs, output_device, dim=self.dim, scalar_warning=self.scalar_warning)

    def _compute_on_one(self, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the module itself, on the only device. Without devices, move no tensors."""
        if not self.device_ids:
            args, kwargs = remove_markers((inputs, kwargs))
            return self.module(*args, **kwargs)
        source, output = self.src_device_obj, self.output_device
        if type(self).scatter is DataParallel.scatter and "scatter" not in self.__dict__:
            args, kwargs = scatter_to_one(inputs, kwargs, source, self.dim)
        else:
            args, kwargs = first_replica_arguments(*self.scatter(inputs, kwargs, self.device_ids))
        return move_output(self.module(*args, **kwargs), source, output)

    @exclude_from_compilation
    def _compute_on_several(
        self,
        inputs: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        steps: Any = None,
    ) -> Any:
        """Compute a batch. ``steps`` has other methods for all steps but :meth:`scatter`."""
        steps = self if steps is None else steps
        check_not_traced()
        with record_function(self._recorded_name):
            cached = self._find_cached_replicas()
            all_args, all_kwargs = at_least_one(*self.scatter(inputs, kwargs, self.device_ids))
            # If a short batch has fewer chunks than there are devices, the last devices stay idle.
            used = self.device_ids[: len(all_args)]
            chunks = SeparateChunks()
            if torch.is_grad_enabled() and len({*used}) < len(used) == len(all_kwargs):
                arguments = chunks.separate([*zip(all_args, all_kwargs, strict=True)])
                all_args, all_kwargs = zip(*arguments, strict=True)
                del arguments
            replicas = cached[: len(used)] or steps.replicate(self.module, used)
            try:
                outputs = steps.parallel_apply(replicas, all_args, all_kwargs)
            finally:
                chunks.write_back()
            # Free the memory of the replicas and the inputs before the outputs are gathered.
            del cached, replicas, all_args, all_kwargs
            return steps.gather(outputs, self.output_device)


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

    Args:
        module: The module to run, with its parameters and buffers on the first device.
        inputs: A tuple of positional arguments, or a single argument; None for no argument.
        device_ids: See :class:`DataParallel`.
        output_device: See :class:`DataParallel`.
        dim: See :class:`DataParallel`.
        module_kwargs: Keyword arguments.

    Returns:
        The outputs of the replicas, with tensors concatenated on ``output_device``. With one
        device, the outputs of the module, moved there.

    Raises:
        RuntimeError: There is no accelerator, and ``device_ids`` does not name the CPU; a
            parameter or buffer is not on the first device; torch.jit.trace records a call on
            several devices.
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU with other devices; two tensors have different
            numbers of chunks.
        Exception: A replica raised an exception; see :func:`parallel_apply`.
    """
    placement = choose_devices(device_ids, output_device, module)
    if placement is None:
        raise RuntimeError("device type could not be determined")
    if not issubclass(type(inputs), tuple):
        inputs = () if inputs is None else (inputs,)
    if len(placement.device_ids) > 1:
        return _DataParallelCall(module, placement, dim)._compute_on_several(inputs, module_kwargs)
    _, output, source = placement
    check_source(module, source)
    args, kwargs = scatter_to_one(inputs, module_kwargs or {}, source, dim)
    return move_output(module(*args, **kwargs), source, output)


class _DataParallelCall(DataParallel[nn.Module]):
    """One call of :func:`data_parallel` on several devices."""

    _recorded_name = "data_parallel"

    @exclude_from_compilation
    def __init__(self, module: nn.Module, placement: Placement, dim: int) -> None:
        nn.Module.__init__(self)
        with argument("module or dim"):
            self.module, self.dim = module, dim
        self.device_ids, self.output_device, self.src_device_obj = placement

    def replicate(self, module: nn.Module, device_ids: Sequence[DeviceLike]) -> list[nn.Module]:
        """Copy the module, never detached."""
        return replicate(module, device_ids, with_parameters=True)
