"""Settings of the thread and of the process that a call changes and restores."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")


def call_with_setting(
    set_value: Callable[[_T], object],
    value: _T,
    before: _T,
    function: Callable[..., _R],
    *args: Any,
    **kwargs: Any,
) -> _R:
    """Call ``function(*args, **kwargs)`` between ``set_value(value)`` and ``set_value(before)``.

    Return the result of the function. ``before`` is restored even after an interrupt. A ``with``
    block would not always restore it: an interrupt at the start of ``__exit__`` skips the rest of
    this method.
    """
    try:
        set_value(value)
        return function(*args, **kwargs)
    finally:
        try:
            set_value(before)
        except BaseException:  # An interrupt may have stopped `set_value`.
            set_value(before)
            raise


def without_grad(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that calls ``function`` while grad mode is off."""

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = torch.is_grad_enabled()
        return call_with_setting(torch.set_grad_enabled, False, before, function, *args, **kwargs)

    return run


def register_fork_handler(handler: Callable[[], None]) -> None:
    """Register ``handler``, which runs in every forked child. A child has only one thread."""
    if hasattr(os, "register_at_fork"):  # Windows has no forks.
        os.register_at_fork(after_in_child=handler)


@contextmanager
def pause_gc() -> Iterator[None]:
    """Return a context manager that disables the garbage collector inside a ``with`` block.

    The collector runs whenever enough objects have been created. If a block creates a hundred
    thousand objects and drops none, the collector would run many times without effect, and scan
    more objects each time. The setting is process-wide, so garbage of other threads is not
    collected either. Blocks may overlap in several threads. The first block saves whether the
    collector is enabled, and the last block to end restores this setting.
    """
    pause = object()
    try:
        _pauses.begin(pause)
        yield
    finally:
        try:
            _pauses.end(pause)
        except BaseException:  # An interrupt may have stopped `end`.
            _pauses.end(pause)
            raise


class _Pauses:
    """The active blocks of :func:`pause_gc`, in all threads."""

    def __init__(self) -> None:
        # A signal handler or `__del__` may begin a pause in a thread that holds the lock.
        self._lock = RLock()
        self._active: set[object] = set()
        self._was_enabled = False

    def begin(self, pause: object) -> None:
        # Hold the lock during the check and the change. If the last other block ended between
        # them, the collector would stay disabled forever.
        with self._lock:
            if not self._active:
                self._was_enabled = gc.isenabled()
            # Add before the collector is disabled, so that `end` undoes an interrupted `begin`.
            self._active.add(pause)
            gc.disable()

    def end(self, pause: object) -> None:
        """End a pause. A second call, after an interrupt of the first one, completes it."""
        with self._lock:
            self._active.discard(pause)
            if not self._active and self._was_enabled:
                gc.enable()
                self._was_enabled = False

    def reset_after_fork(self) -> None:
        """End all blocks in a forked child, which has only one of the parent's threads."""
        self._lock = RLock()  # A thread of the parent process may have held the old lock.
        for pause in [*self._active]:
            self.end(pause)


_pauses = _Pauses()
register_fork_handler(_pauses.reset_after_fork)
