"""A wrapper whose replicas are kept for several batches."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

import torch
from torch import nn

from .._arguments import argument, as_bool, as_int
from .._devices import DeviceLike
from .._forward import Wrapper, check_method
from .._module_tree import check_source
from .._torch_private import exclude_from_compilation, has_modes_or_transforms
from ..replicate import replicate_with
from .frozen import FrozenCopies
from .hold import KeptReplicas, keep_replicas
from .map import ReplicaPool, map_batches

T = TypeVar("T", bound=nn.Module)


class KeepingWrapper(Wrapper[T]):
    """A wrapper that can keep its replicas, or copies of frozen parameters."""

    cache_frozen_parameters: bool = False

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        """Copy the module, detached if grad mode is off. A subclass may override this step.

        The wrapper has no argument ``buffer_size``: override this step to pass it to
        :func:`replicate`.

        With ``cache_frozen_parameters``, copies of parameters that do not require grad are kept,
        one on each device after the first, and the replicas share their memory. All are copied
        again after each change of one of them that can be seen before the forward: of its version,
        memory or shape, of one of 16 elements that are spread over it, or by a step of an
        optimizer, if the parameter requires grad or has a gradient; after a replica has changed a
        copy in place; and if another stream is current. Old copies stay in use after any other
        change. A forward waits for the first device, to compare the elements.

        Parameters without comparable elements (sparse, of a class with its own operators, with
        gaps in their memory, on the meta device), those created in inference mode, and all buffers
        are copied in each forward, and so are all parameters while a dispatch mode or a transform
        of ``torch.func`` is active. The copies are freed with the wrapper, and by its methods
        ``to``, ``cpu`` and the like.
        """
        if not self.cache_frozen_parameters:
            FrozenCopies.free(self)
        elif not has_modes_or_transforms():
            detach = not torch.is_grad_enabled()
            copier = FrozenCopies.find_or_make(self).copy
            return replicate_with(copier, module, device_ids, detach, with_parameters=True)
        return super().replicate(module, device_ids)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        # The copies shall not occupy memory of devices that the module has left.
        FrozenCopies.free(self)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return self

    @exclude_from_compilation
    def hold(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the replicas in a ``with`` block, for evaluation.

        Example: ``with torch.no_grad(), net.hold(): ...``. The first forward in the block calls
        :meth:`replicate` for all devices, and later forwards reuse the replicas, also in other
        threads. A forward builds new replicas if other streams are current, or if it detects a
        change: of modules, their classes, attributes, hooks, parameters, buffers and training
        modes, a step of an optimizer, or a change that the last forward has made to its replicas.
        Attributes that the replicas share with the module, such as a dictionary of settings, need
        no new replicas. If a forward has not detected a change, and has used old copies, the end
        of the block raises an error. The end misses one kind of change: it increases no version,
        changes none of 16 elements of a tensor, and is undone in the block or followed by a
        detected change.

        An attribute that a replica sets in a forward remains on that replica until the replicas
        are built again. With one device, or none, the block has no effect. A tree is replicated in
        each forward if it has a script module, a module in training mode with one-dimensional
        buffers (batch norm writes them without a new version), a buffer that was created in
        inference mode, or a tensor that cannot be compared (see :meth:`replicate`), and while a
        dispatch mode or a transform of ``torch.func`` is active. Blocks may be nested; the
        outermost one frees the replicas. Copies and pickles of the wrapper contain no replicas.

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
    ) -> Generator[Any]:
        """Yield the output of the module for each batch. Whole batches go to free devices.

        Example: ``with torch.no_grad(): for output in net.map(batches): ...``. It is :meth:`hold`
        for its duration, and calls only :meth:`replicate` of the four steps. A module that changes
        buffers, as batch norm in training, has no defined order of these changes.

        Args:
            batches: The batches. A list or tuple contains the positional arguments, a mapping the
                keyword arguments; any other object is the only argument. The iterator is used in
                the calling thread.
            method: The name of a method of the module, such as ``"generate"``, that computes a
                batch. By default the module is called.
            in_flight: The largest number of batches that were taken from ``batches`` and whose
                outputs were not yielded. By default two for each device.
            ordered: Whether outputs have the order of the batches. Otherwise each is yielded when
                it is ready.

        Returns:
            A generator. A tensor on the device of its replica is moved to ``output_device``. If
            the generator is closed, it waits for the batches that have begun.

        Raises:
            ValueError: ``in_flight`` is less than 1.
            TypeError: ``in_flight`` is no integer, ``batches`` is not iterable, or the module has
                no such ``method``.
            RuntimeError: Grad mode is on. At the end: a tensor has changed in a way that increases
                no version; see :meth:`hold`. If the generator is closed before, it warns.
            Exception: The module or ``batches`` raised an exception. It is raised in place of the
                output, as in :func:`parallel_apply`, and ends the generator.
        """
        limit = 2 * max(1, len(self.device_ids))
        if in_flight is not None:
            limit = as_int("in_flight", in_flight)
        if limit < 1:
            raise ValueError(f"in_flight is {limit}, and must be at least 1")
        ordered = as_bool("ordered", ordered)
        if method is not None:
            check_method(self._network(), method)
        with argument("batches"):
            return self._map(iter(batches), method, limit, ordered)

    def _map(
        self, batches: Iterator[Any], method: str | None, limit: int, ordered: bool
    ) -> Generator[Any]:
        devices = self.device_ids or [torch.device("cpu")]
        output_device = self.output_device if self.device_ids else devices[0]
        pool = ReplicaPool(devices, output_device, method, in_turn=self.in_turn)
        with self.hold():
            yield from map_batches(batches, self._find_replicas, pool, limit, ordered=ordered)

    def _find_replicas(self) -> Sequence[T]:
        """Return a detached replica for each device; the module, if it is the only one."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "map() computes without gradients, and grad mode is on: iterate under "
                "torch.no_grad()"
            )
        kept = self._kept_replicas()
        if self.device_ids and not kept:
            check_source(self._network(), self.src_device_obj)
        return kept or (self._network(),)

    @exclude_from_compilation
    def _kept_replicas(self) -> Sequence[T]:
        """Return the replicas of the active block of ``hold``; outside of it, an empty tuple.

        Raise RuntimeError if a parameter or buffer is not on the first device.
        """
        kept, network = KeptReplicas.find_active(self), self._network()

        def build() -> list[T]:
            check_source(network, self.src_device_obj)
            return self.replicate(network, self.device_ids)

        return () if kept is None else kept.replicas(network, self.device_ids, build)
