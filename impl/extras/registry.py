"""The cached replicas and the kept copies of all wrappers in this process."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from .._compat import exclude_from_compilation, register_fork_handler
from .._device import DeviceId
from .frozen import FrozenCopies
from .hold import ReplicaCache

#: For the ``id`` of each wrapper with an active :class:`ReplicaCacheBlock`: the wrapper's cache.
_caches: dict[int, ReplicaCache] = {}
#: For each wrapper that has kept copies of frozen parameters: the copies.
_frozen: WeakKeyDictionary[nn.Module, FrozenCopies] = WeakKeyDictionary()
_lock = RLock()
#: The handle of the hook that PyTorch calls after each optimizer's step, while a block is active,
#: or after a wrapper has kept copies of frozen parameters.
_step_hooks: list[RemovableHandle] = []


def find_replica_cache(wrapper: nn.Module) -> ReplicaCache | None:
    """Return the cache of ``wrapper``, or None outside of :class:`ReplicaCacheBlock`."""
    return _caches.get(id(wrapper))


def find_frozen_copies(wrapper: nn.Module) -> FrozenCopies:
    """Return the copies of frozen parameters that ``wrapper`` keeps until it is freed."""
    found = _frozen.get(wrapper)
    if found is None:
        with _lock:
            _add_step_hook()
            found = _frozen.setdefault(wrapper, FrozenCopies())
    return found


def free_frozen_copies(wrapper: nn.Module) -> None:
    """Free the copies of frozen parameters that ``wrapper`` keeps, if there are any."""
    if wrapper in _frozen:
        with _lock:
            _frozen.pop(wrapper, None)


class ReplicaCacheBlock(AbstractContextManager[None]):
    """A ``with`` block in which the replicas of a wrapper are cached. Blocks may be nested."""

    # The cache is not an attribute of the wrapper, because copies, pickles and replicas of the
    # wrapper would inherit it. The block keeps the wrapper alive, so that no other object can get
    # the same `id`.
    def __init__(self, wrapper: nn.Module, device_ids: Sequence[DeviceId]) -> None:
        self._wrapper, self._device_ids = wrapper, device_ids
        self._generators: list[Generator[None]] = []

    def __enter__(self) -> None:
        generator = _cache_replicas(self._wrapper, self._device_ids)
        next(generator)
        self._generators.append(generator)

    def __exit__(self, *_: object) -> None:
        self._generators.pop().close()


def _cache_replicas(wrapper: nn.Module, device_ids: Sequence[DeviceId]) -> Generator[None]:
    """Cache the replicas of ``wrapper`` until the generator is closed.

    An interrupt may skip ``__exit__`` of the block. Python then closes the generator when the
    block is freed.
    """
    block = object()
    try:
        _begin(block, wrapper, device_ids)
        yield
    finally:
        try:
            _end(block, wrapper)
        except BaseException:  # An interrupt may have stopped `_end`.
            _end(block, wrapper)
            raise


def _begin(block: object, wrapper: nn.Module, device_ids: Sequence[DeviceId]) -> None:
    with _lock:
        cache = _caches.get(id(wrapper)) or ReplicaCache(device_ids)
        cache.blocks.add(block)
        _caches[id(wrapper)] = cache
        _add_step_hook()


def _end(block: object, wrapper: nn.Module) -> None:
    """End a block. A second call, after an interrupt of the first one, completes it."""
    with _lock:
        cache = _caches.get(id(wrapper))
        if cache is not None:
            cache.blocks.discard(block)
            if not cache.blocks:
                # A signal handler that entered and left a block may have removed the cache.
                _caches.pop(id(wrapper), None)
        if not _caches and not _frozen:
            _remove_step_hooks()


def _add_step_hook() -> None:
    if not _step_hooks:
        # `extend` stores the handle before an interrupt can arrive, which would lose it.
        _step_hooks.extend(map(register_optimizer_step_post_hook, [_note_step]))


def _remove_step_hooks() -> None:
    for handle in _step_hooks.copy():
        handle.remove()
    _step_hooks.clear()


@exclude_from_compilation
def _note_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Note in all caches that ``optimizer`` has changed its parameters that have gradients."""
    changed = [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    with _lock:
        caches: list[ReplicaCache | FrozenCopies] = [*_caches.values(), *_frozen.values()]
    for cache in caches:
        cache.note_step(changed)


def _reset_after_fork() -> None:
    """Remove all caches in a forked child, which has only one of the parent's threads."""
    global _frozen, _lock
    _lock = RLock()  # Another thread of the parent may have held the old lock.
    _caches.clear()
    _frozen = WeakKeyDictionary()
    _remove_step_hooks()


register_fork_handler(_reset_after_fork)
