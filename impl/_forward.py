"""The forward of a wrapper: four steps that compute a batch on several devices.

    scatter        splits the inputs into one chunk per device
    replicate      copies the module to the devices that have a chunk
    parallel_apply runs each replica on its chunk
    gather         concatenates the outputs on one device

With one device, the module itself computes the batch.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from ._devices import DeviceLike
from ._inputs import find_tensors, remove_markers
from ._module_tree import check_source
from ._one_device import call_on_one_device, first_replica_arguments, move_output
from ._placement import DeviceId
from ._scatter_leaves import check_no_zero
from ._torch_private import (
    compile_only_inlined,
    exclude_from_compilation,
    has_dual_level,
    is_refused_by_transform,
)
from ._tracing import ProfilerSpan, break_graph, check_not_traced, is_compiling_or_tracing
from ._unshared_chunks import UnsharedChunks
from ._wrapped_module import AttributeForwardingModule, check_method, method_of
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather_outputs, scatter_kwargs

T = TypeVar("T", bound=nn.Module)


class Wrapper(AttributeForwardingModule, Generic[T]):
    """A module that computes each batch on several devices.

    A forward builds replicas, unless :meth:`_kept_replicas` returns some.
    """

    module: T
    device_ids: list[DeviceId]
    output_device: DeviceId
    dim: int
    src_device_obj: torch.device
    #: Defaults are class attributes, so that a wrapper pickled without them can be loaded.
    chunk_sizes: Sequence[float] | None = None
    in_turn: bool = False
    scalar_warning: bool = True
    #: The name of a forward in profiles.
    _profiler_name = "DataParallel.forward"

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
            NotImplementedError: There are several devices, and an argument, a parameter or a
                buffer has a tangent of forward-mode AD.
            Exception: A replica raised an exception; see :func:`parallel_apply`.
        """
        return self._compute(None, inputs, kwargs)

    def call(self, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        """Call a method of the module on each replica, as a forward calls the module.

        Without arguments only the first replica runs.

        Example: ``wrapper.call("generate", input_ids, max_new_tokens=20)``.

        Args:
            method: The name of a method of :attr:`module`, or of an attribute that is a bound
                method of one of its submodules.
            inputs: Positional arguments of the method, split like those of :meth:`forward`.
            kwargs: Keyword arguments of the method, split in the same way.

        Returns:
            The results of the replicas, with tensors concatenated on ``output_device``. With one
            device, the result of the method, moved there.

        Raises:
            TypeError: ``method`` is not the name of a method of the module.
            ValueError: There are several devices and arguments, and no argument contains a tensor.
                Each replica would compute the same, and the results would be joined. Use
                :meth:`map`.
            RuntimeError: Results differ in another dimension than ``dim``. A note has the shapes
                of all replicas. Use :meth:`map` if they do, as generated texts may; or see
                :meth:`forward`.
            Exception: See :meth:`forward`.
        """
        self._check_method(method)
        is_split = len(self.device_ids) > 1 and (inputs or kwargs)
        if is_split and not find_tensors((inputs, kwargs), "arguments"):
            raise ValueError(
                f"no argument of {method!r} contains a tensor to split, so each replica would "
                "compute the same: use `map`, or the method of `wrapper.module`"
            )
        return self._compute(method, inputs, kwargs)

    @compile_only_inlined
    def _compute(
        self, method: str | None, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the module, or a method of it, on all devices."""
        if len(self.device_ids) > 1:
            break_graph()
            return self._compute_on_several(method, inputs, kwargs)
        if is_compiling_or_tracing():
            return self._compute_on_one(method, inputs, kwargs)
        with ProfilerSpan(self._profiler_name):
            if self.device_ids:
                check_source(self._replicated_module(), self.src_device_obj)
            return self._compute_on_one(method, inputs, kwargs)

    @exclude_from_compilation
    def scatter(
        self,
        inputs: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        device_ids: Sequence[DeviceLike],
    ) -> Any:
        """Split the arguments with ``scatter_kwargs``. A subclass may override this step."""
        if self.chunk_sizes is not None:
            check_no_zero(self.chunk_sizes)
        return scatter_kwargs(
            inputs, kwargs, device_ids, dim=self.dim, chunk_sizes=self.chunk_sizes
        )

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        """Copy the module. Gradients flow back to it. A subclass may override this step."""
        return replicate(module, device_ids, with_parameters=True)

    def parallel_apply(
        self, replicas: Sequence[T], inputs: Sequence[Any], kwargs: Any
    ) -> list[Any]:
        """Run each replica, or its method, on its device. A subclass may override this step."""
        devices = self.device_ids[: len(replicas)]
        return parallel_apply(replicas, inputs, kwargs, devices, in_turn=self.in_turn)

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Concatenate the outputs with ``gather``. A subclass may override this step."""
        return gather_outputs(
            outputs,
            output_device,
            self.dim,
            scalar_warning=self.scalar_warning,
            module=self.module,
        )

    def _compute_on_one(
        self, method: str | None, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the module itself, on the only device. Without devices, move no tensors."""
        function = method_of(self._replicated_module(), method)
        if not self.device_ids:
            args, kwargs = remove_markers((inputs, kwargs))
            return function(*args, **kwargs)
        source, output = self.src_device_obj, self.output_device
        if type(self).scatter is Wrapper.scatter and "scatter" not in self.__dict__:
            return call_on_one_device(function, inputs, kwargs, source, output, self.dim)
        args, kwargs = first_replica_arguments(*self.scatter(inputs, kwargs, self.device_ids))
        return move_output(function(*args, **kwargs), source, output)

    @exclude_from_compilation
    def _compute_on_several(
        self, method: str | None, inputs: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Any:
        check_not_traced()
        if has_dual_level():
            _check_no_tangents(self.module, (inputs, kwargs))
        try:
            with ProfilerSpan(self._profiler_name):
                # The end of this call frees replicas and chunks before the outputs are gathered.
                outputs = self._compute_outputs(method, inputs, kwargs)
                return self.gather(outputs, self.output_device)
        except RuntimeError as error:
            if is_refused_by_transform(error):
                error.add_note(
                    "transforms of torch.func do not pass through replicas: use `wrapper.module`, "
                    "or one device"
                )
            raise

    def _compute_outputs(
        self, method: str | None, inputs: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> list[Any]:
        """Return the outputs of the replicas, which ``gather`` concatenates."""
        kept = self._kept_replicas()
        if not kept:
            check_source(self._replicated_module(), self.src_device_obj)
        all_args, all_kwargs = self.scatter(inputs, kwargs, self.device_ids)
        if not (all_args or all_kwargs):  # The call has no arguments: one replica runs.
            all_args, all_kwargs = ((),), ({},)
        # If a short batch has fewer chunks than there are devices, the last devices stay idle.
        used = self.device_ids[: len(all_args)]
        replicas = kept[: len(used)] or self.replicate(self._replicated_module(), used)
        functions = replicas if method is None else [getattr(each, method) for each in replicas]
        # Chunks of one tensor on one device share a version counter, which backward checks. If
        # `scatter` is overridden, there may be no keyword arguments for some replica.
        is_repeated = len(self.device_ids) > len({*self.device_ids})
        may_share = torch.is_grad_enabled() and is_repeated and len(used) == len(all_kwargs or ())
        if not may_share:
            return self.parallel_apply(functions, all_args, all_kwargs)
        unshared = UnsharedChunks()
        try:
            return self.parallel_apply(functions, *unshared.separate(all_args, all_kwargs))
        finally:
            unshared.write_back()

    def _replicated_module(self) -> T:
        """Return the module that is replicated. A subclass may add to :attr:`module`."""
        return self.module

    def _check_method(self, name: str) -> None:
        """Raise TypeError if ``name`` is not that of a method that replicas can run."""
        check_method(self._replicated_module(), name)

    def _kept_replicas(self) -> Sequence[T]:
        """Return replicas for all devices that an earlier forward has built, if there are any."""
        return ()


def _check_no_tangents(module: nn.Module, arguments: Any) -> None:
    """Raise NotImplementedError if an argument, a parameter or a buffer has a tangent."""
    inputs = find_tensors(arguments, "arguments")
    for tensor in chain(inputs, module.parameters(), module.buffers()):
        if isinstance(tensor, Tensor) and unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call] # in torch
            raise NotImplementedError(
                "forward-mode AD does not pass tangents through replicas: use `wrapper.module`, "
                "or one device"
            )
