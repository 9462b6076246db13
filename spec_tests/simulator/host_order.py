"""Tells the race detector how locks, queues, and starts and ends order host threads.

Without `follow_threads`, the race detector treats all host threads as one. `follow_threads`
replaces locks and queues of Python by classes that call the detector.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any
from unittest import mock

import torch

from . import native

__all__ = ["follow_threads"]

_new_lock = threading.Lock
#: The numbers by which the detector tells threads apart.
_numbers = itertools.count(1)
_thread_start = threading.Thread.start
_thread_run: Callable[[threading.Thread], None] = vars(threading.Thread)["_bootstrap_inner"]
_thread_join = threading.Thread.join


@contextmanager
def follow_threads() -> Iterator[None]:
    """Find threads that use one tensor without order, in all blocks of `races` inside this block.

    Two accesses of two threads race if neither thread is ordered before the other, even on one
    stream, because chance decides which access comes first. Locks, conditions, events, semaphores,
    barriers and joins of ``threading`` order threads. ``queue``, ``concurrent.futures`` and
    ``backward`` order threads, too. Locks, queues and threads that were created before this block
    order nothing: import the program inside the block.
    """
    replacements = {
        threading: {"Lock": _Lock, "_allocate_lock": _Lock, "RLock": vars(threading)["_PyRLock"]},
        queue: {"SimpleQueue": _SimpleQueue},
        threading.Thread: {"start": _start, "_bootstrap_inner": _run, "join": _join},
    }
    extension = native.extension()
    with ExitStack() as stack:
        for owner, names in replacements.items():
            stack.enter_context(mock.patch.multiple(owner, **names))
        stack.callback(extension.follow_threads, False)
        extension.follow_threads(True)
        _number_thread()
        yield


def _number_thread() -> None:
    # PyTorch hands this value on to the threads of autograd that work for this thread.
    torch._C._stash_obj_in_tls("sim.thread", next(_numbers))


class _Lock:
    """A lock. A thread that acquires it is ordered after the threads that released it."""

    def __init__(self) -> None:
        self._lock = _new_lock()
        self._order: native.HostOrder | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        acquired = self._lock.acquire(blocking, timeout)
        if acquired:
            native.extension().take_over(self._order)
        return acquired

    def release(self) -> None:
        self._order = native.extension().hand_over()
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()  # type: ignore[attr-defined] # only the stub lacks it


class _SimpleQueue(queue.SimpleQueue[Any]):
    """A queue. A thread that gets an item is ordered after the thread that put it."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put((native.extension().hand_over(), item), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        order, item = super().get(block, timeout)
        native.extension().take_over(order)
        return item

    def put_nowait(self, item: Any) -> None:
        self.put(item)

    def get_nowait(self) -> Any:
        return self.get(block=False)


def _start(thread: threading.Thread) -> None:
    vars(thread)["_order_of_start"] = native.extension().hand_over()
    _thread_start(thread)


def _run(thread: threading.Thread) -> None:
    _number_thread()
    native.extension().take_over(vars(thread).get("_order_of_start"))
    try:
        _thread_run(thread)
    finally:
        vars(thread)["_order_of_end"] = native.extension().hand_over()


def _join(thread: threading.Thread, timeout: float | None = None) -> None:
    _thread_join(thread, timeout)
    if not thread.is_alive():
        native.extension().take_over(vars(thread).get("_order_of_end"))
