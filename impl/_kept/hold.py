"""Replicas that are kept inside ``with wrapper.hold()``.

Before each forward the state of the module is compared with that of the time when the replicas
were built. After a change they are built again. A change that the state does not show is found by
samples, or when the block ends, and is an error then.
"""

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from .._devices import as_device_or_current
from .._forks import register_fork_handler
from .._module_tree import Tree, collect_tree, is_script_module
from .._placement import DeviceId
from .._streams import current_stream_by_device
from .._torch_private import call_with_inference_mode, has_modes_or_transforms
from .changes import StepWatcher, find_comparable
from .state import Attributes, CopiedTensors


class ReplicaCache(StepWatcher):
    """The replicas of one wrapper, kept while ``with`` blocks of ``hold`` are active."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: set[object] = set()  # An object for each active block.
        # The keys are devices, and the streams that were current when the replicas were built. The
        # copies are ready on these streams, and their memory is freed on these streams. A forward
        # on other streams builds other replicas.
        self._kept: dict[tuple[Any, ...], _HeldReplicas] = {}
        self._forwards = 0
        self._errors: list[str] = []
        # Forwards in several threads may use the cache at the same time, and a signal handler may
        # call the wrapper in a thread that holds the lock.
        self._lock = RLock()

    def note_step(self, memory: set[object]) -> None:
        """Note that an optimizer has changed the tensors with this memory."""
        for kept in [*self._kept.values()]:
            kept.tensors.note_step(memory)

    def replicas(
        self, module: nn.Module, device_ids: Sequence[DeviceId], build: Callable[[], Sequence[Any]]
    ) -> Sequence[Any]:
        """Return one replica with the current state of ``module`` for each device.

        If none are kept, or the module has changed, ``build`` builds them. Raise RuntimeError if
        grad mode is on.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Held replicas are detached, and grad mode is on: call the module under "
                "torch.no_grad(), or outside of hold()"
            )
        # Copies that a mode of the caller has made must not be used after its end.
        if has_modes_or_transforms():
            return build()
        targets = [as_device_or_current(device) for device in device_ids]
        key = (*targets, *current_stream_by_device(targets).values())
        with self._lock:
            self._forwards += 1
            kept = self._kept.get(key)
            if kept is not None and kept.is_current(module):
                kept.tensors.sample()
                return kept.replicas
            if kept is not None:
                self._free(key, compares=False)
            if not _can_be_kept(collect_tree(module)):
                return build()
            # Leave inference mode, because the next forward may run outside of inference mode and
            # could not use inference tensors.
            kept = call_with_inference_mode(
                False, lambda: _HeldReplicas(module, build(), self._forwards)
            )
            self._kept[key] = kept
            return kept.replicas

    def find_error(self) -> str | None:
        """Free all replicas. Return a text if a forward may have used old values."""
        with self._lock:
            for key in [*self._kept]:
                self._free(key, compares=True)
        return self._errors[0] if self._errors else None

    def _free(self, key: tuple[Any, ...], *, compares: bool) -> None:
        self._errors += filter(None, [self._kept.pop(key).tensors.find_error(compares=compares)])


def _can_be_kept(tree: Tree) -> bool:
    """Return whether all changes of ``tree`` can be seen."""
    tensors = [*tree.parameters, *tree.buffers]
    return (
        not any(map(_is_opaque, tree.modules))
        and not any(buffer.is_inference() for buffer in tree.buffers)
        and len(find_comparable(tensors)) == len(tensors)
    )


def _is_opaque(module: nn.Module) -> bool:
    """Return whether ``module`` has attributes elsewhere, or changes buffers without a version.

    ``functional.batch_norm`` does so in training, with one-dimensional buffers.
    """
    return is_script_module(module) or (
        module.training and any(map(_may_be_statistic, module._buffers.values()))
    )


def _may_be_statistic(buffer: Tensor | None) -> bool:
    return buffer is not None and buffer.dim() == 1 and buffer.is_floating_point()


class _HeldReplicas:
    """Replicas, and the state of the module when they were built."""

    def __init__(self, module: nn.Module, replicas: Sequence[Any], forward: int) -> None:
        self.replicas = replicas
        named_modules = [*module.named_modules()]
        self.tensors = CopiedTensors(named_modules, replicas, forward)
        self._attributes = Attributes(named_modules, self.tensors.sources, replicas)

    def is_current(self, module: nn.Module) -> bool:
        """Return whether ``module`` has the state from which the replicas were built."""
        return self._attributes.is_current(module) and self.tensors.is_current()


#: For the ``id`` of each wrapper with an active :class:`HoldBlock`: the wrapper's cache.
_caches: dict[int, ReplicaCache] = {}
_lock = RLock()


def find_replica_cache(wrapper: nn.Module) -> ReplicaCache | None:
    """Return the cache of ``wrapper``, or None outside of :class:`HoldBlock`."""
    return _caches.get(id(wrapper))


class HoldBlock(AbstractContextManager[None]):
    """A ``with`` block in which the replicas of a wrapper are kept. Blocks may be nested."""

    # The cache is not an attribute of the wrapper, because copies, pickles and replicas of the
    # wrapper would inherit it. The block keeps the wrapper alive, so that no other object can get
    # the same `id`.
    def __init__(self, wrapper: nn.Module) -> None:
        self._wrapper = wrapper
        self._generators: list[Generator[None]] = []

    def __enter__(self) -> None:
        generator = _keep_replicas(self._wrapper)
        next(generator)
        self._generators.append(generator)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raise RuntimeError if a forward may have used old values; after an exception, warn."""
        cache = find_replica_cache(self._wrapper)
        self._generators.pop().close()
        if cache is None or cache.blocks:
            return
        text = cache.find_error()
        if text is not None and kind is None:
            raise RuntimeError(text)
        if text is not None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _keep_replicas(wrapper: nn.Module) -> Generator[None]:
    """Keep the replicas of ``wrapper`` until the generator is closed.

    An interrupt may skip ``__exit__`` of the block. Python then closes the generator when the
    block is freed.
    """
    block = object()
    try:
        _begin(block, wrapper)
        yield
    finally:
        try:
            _end(block, wrapper)
        except BaseException:  # An interrupt may have stopped `_end`.
            _end(block, wrapper)
            raise


def _begin(block: object, wrapper: nn.Module) -> None:
    with _lock:
        cache = _caches.get(id(wrapper)) or ReplicaCache()
        cache.blocks.add(block)
        _caches[id(wrapper)] = cache


def _end(block: object, wrapper: nn.Module) -> None:
    """End a block. A second call, after an interrupt of the first one, completes it."""
    with _lock:
        cache = _caches.get(id(wrapper))
        if cache is not None:
            cache.blocks.discard(block)
            if not cache.blocks:
                # A signal handler that entered and left a block may have removed the cache.
                _caches.pop(id(wrapper), None)


def _reset_after_fork() -> None:
    """Forget all caches in a forked child, which has only one of the parent's threads."""
    global _lock
    _lock = RLock()  # Another thread of the parent may have held the old lock.
    _caches.clear()


register_fork_handler(_reset_after_fork)
